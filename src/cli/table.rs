//! Columns of text that line up.

/// Which side a column's text is pushed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// A table: the first row is its head.
pub(super) struct Table {
    sides: Vec<Side>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with this head.
    pub(super) fn new<const N: usize>(head: [(&str, Side); N]) -> Self {
        Self {
            sides: head.iter().map(|(_, side)| *side).collect(),
            rows: vec![head.iter().map(|(text, _)| (*text).to_owned()).collect()],
        }
    }

    /// Adds a row; a shorter one ends with free text that does not widen its column.
    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Its lines, head first, without blanks at their ends.
    pub(super) fn lines(&self) -> Vec<String> {
        let columns = self.sides.len();
        let width = |column: usize| {
            let full = |row: &&Vec<String>| row.len() == columns || column + 1 < row.len();
            let cells = self.rows.iter().filter(full);
            let widths = cells.map(|row| row[column].chars().count());
            widths.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).zip(&self.sides);
            let cells = cells.map(|((text, &width), side)| match side {
                Side::Left => format!("{text:width$}"),
                Side::Right => format!("{text:>width$}"),
            });
            let mut cells: Vec<String> = cells.collect();
            if row.len() < columns
                && let (Some(last), Some(text)) = (cells.last_mut(), row.last())
            {
                last.clone_from(text);
            }
            cells.join("  ").trim_end().to_owned()
        };
        self.rows.iter().map(line).collect()
    }
}

/// A number as people read it: 1234567 is 1,234,567.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A duration in milliseconds as people read it.
pub(super) fn brief(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..120_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        _ => format!("{} s", grouped(ms / 1000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_free_text_does_not_widen_them() {
        let mut table = Table::new([
            ("NAME", Side::Left),
            ("COUNT", Side::Right),
            ("X", Side::Left),
        ]);
        table.row(vec!["a".into(), "1,000,000".into(), "y".into()]);
        table.row(vec!["longer".into(), "anything at all, at length".into()]);
        let expected = [
            "NAME        COUNT  X",
            "a       1,000,000  y",
            "longer  anything at all, at length",
        ];
        assert_eq!(table.lines(), expected);
    }

    #[test]
    fn numbers_are_grouped_and_durations_brief() {
        let numbers = [0, 999, 1000, 1_234_567].map(grouped);
        assert_eq!(numbers, ["0", "999", "1,000", "1,234,567"]);
        let spans = [0, 999, 1050, 119_999, 120_000].map(brief);
        assert_eq!(spans, ["0 ms", "999 ms", "1.0 s", "119.9 s", "120 s"]);
    }
}
