//! One violation as a picture: who asked, held and released what when, and which fault was on.

use std::fmt::Write as _;

use crate::checker::Violation;
use crate::history::{Call, History, Operation, Outcome, S};

/// How much is shown before and after what a violation is about, in nanoseconds.
const MARGIN_NS: u64 = 2 * S;

/// Lines that are drawn.
const LINES_MAX: usize = 60;

/// Measures of the picture in pixels.
const WIDTH: f64 = 1400.0;
const LABEL_WIDTH: f64 = 260.0;
const LINE_HEIGHT: f64 = 18.0;

/// The picture, as SVG.
pub(super) fn draw(history: &History, violation: &Violation) -> String {
    let involved = |op: &&Operation| violation.ops.contains(&op.id);
    let first = history
        .operations
        .iter()
        .filter(involved)
        .map(|op| op.called);
    let from = first
        .min()
        .unwrap_or(violation.at)
        .min(violation.at)
        .saturating_sub(MARGIN_NS);
    let scale = Scale {
        from,
        to: violation.at + MARGIN_NS,
    };
    let mut picture = Picture {
        scale,
        lines: 1,
        body: String::new(),
    };
    for fault in &history.faults {
        if fault.began <= scale.to && fault.ended >= scale.from {
            let targets = fault.begin.targets.join(" ");
            let label = format!("{} {targets}", fault.begin.kind);
            picture.line(&label, fault.began, fault.ended, "#f4a582", "");
        }
    }
    for (at, leader) in &history.leaders {
        if (scale.from..=scale.to).contains(at) {
            let who = leader.as_deref().unwrap_or("nobody");
            picture.line(&format!("{who} leads"), *at, *at, "#762a83", "");
        }
    }
    for operation in &history.operations {
        let near = operation.called <= scale.to && operation.ended >= scale.from;
        let same_key = violation.key.as_deref() == Some(operation.call.key());
        if involved(&operation) || (near && same_key) {
            let color = color(operation, involved(&operation));
            let text = text(operation);
            let label = format!("#{} client {}", operation.id, operation.client);
            picture.line(&label, operation.called, operation.ended, color, &text);
        }
    }
    picture.finish(violation)
}

#[derive(Clone, Copy)]
struct Scale {
    from: u64,
    to: u64,
}

impl Scale {
    fn x(self, at: u64) -> f64 {
        let at = at.clamp(self.from, self.to) - self.from;
        let whole = (self.to - self.from).max(1);
        LABEL_WIDTH + (WIDTH - LABEL_WIDTH) * (at as f64) / (whole as f64)
    }
}

struct Picture {
    scale: Scale,
    lines: usize,
    body: String,
}

impl Picture {
    fn line(&mut self, label: &str, from: u64, to: u64, color: &str, text: &str) {
        if self.lines > LINES_MAX {
            return;
        }
        self.lines += 1;
        let y = LINE_HEIGHT * self.lines as f64;
        let (left, right) = (self.scale.x(from), self.scale.x(to));
        let width = (right - left).max(2.0);
        let (label, text) = (escape(label), escape(text));
        // Writing to a string does not fail.
        let _ = writeln!(
            self.body,
            "<text x='4' y='{:.1}'>{label}</text>\
             <rect x='{left:.1}' y='{:.1}' width='{width:.1}' height='12' fill='{color}'/>\
             <text x='{:.1}' y='{:.1}'>{text}</text>",
            y + 10.0,
            y,
            left + 3.0,
            y + 10.0,
        );
    }

    fn finish(self, violation: &Violation) -> String {
        let height = LINE_HEIGHT * (self.lines as f64 + 3.0);
        let at = self.scale.x(violation.at);
        format!(
            "<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{height}' \
             font-family='monospace' font-size='10'>\n\
             <text x='4' y='12' font-size='12'>{} {}</text>\n\
             <text x='4' y='26'>{:.3} s to {:.3} s; bars are calls, from call to answer; \
             red: what the violation is about</text>\n{}\
             <line x1='{at:.1}' x2='{at:.1}' y1='30' y2='{height}' stroke='red'/>\n</svg>\n",
            escape(&violation.checker),
            escape(&violation.text),
            self.scale.from as f64 / S as f64,
            self.scale.to as f64 / S as f64,
            self.body,
        )
    }
}

fn color(operation: &Operation, involved: bool) -> &'static str {
    match (involved, &operation.call, operation.outcome) {
        (true, ..) => "#e9828a",
        (_, _, Outcome::Info(_)) => "#d9d9d9",
        (_, _, Outcome::Fail(_)) => "#c7d9e8",
        (_, Call::Acquire { .. }, _) => "#8fc78f",
        (_, Call::Release { .. }, _) => "#e3d48a",
    }
}

fn text(operation: &Operation) -> String {
    let came = match operation.outcome {
        Outcome::Ok(_) => match operation.grant() {
            Some(grant) => format!("token {} lease {} s", grant.token, grant.lease / S),
            None => format!("{:?}", operation.outcome),
        },
        other => format!("{other:?}"),
    };
    match operation.call {
        Call::Acquire { wait_s, .. } => format!("acquire wait {wait_s} s: {came}"),
        Call::Release { token, .. } => format!("release {token}: {came}"),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
