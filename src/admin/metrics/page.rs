//! Families of metrics, one call each, and their text.

use prometheus::TextEncoder;
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram as Buckets, LabelPair, Metric, MetricFamily, MetricType,
};
use raft::measure::Histogram;

/// What one step of a histogram's numbers is worth in its unit.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    /// Nanoseconds, shown as seconds.
    Nanos,
    /// Shown as it is.
    One,
}

/// A page under construction.
#[derive(Default)]
pub(super) struct Page(Vec<MetricFamily>);

impl Page {
    /// Something that goes up and down.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, help, MetricType::GAUGE, vec![gauge(value as f64)]);
    }

    /// Likewise, if it is known.
    pub(super) fn known_gauge(&mut self, name: &str, help: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.gauge(name, help, value);
        }
    }

    /// Something that only grows.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, help, MetricType::COUNTER, vec![counter(value as f64)]);
    }

    /// A gauge in seconds, if it is known.
    pub(super) fn known_seconds(&mut self, name: &str, help: &str, value: Option<f64>) {
        let values = value.map(gauge).into_iter().collect();
        self.family(name, help, MetricType::GAUGE, values);
    }

    /// Seconds that only grow.
    pub(super) fn seconds_counter(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, help, MetricType::COUNTER, vec![counter(value)]);
    }

    /// A gauge for each value of a label.
    pub(super) fn labelled_gauge<'v>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'v str, u64)>,
    ) {
        let values = values.into_iter();
        let values = values.map(|(text, value)| labelled(gauge(value as f64), label, text));
        self.family(name, help, MetricType::GAUGE, values.collect());
    }

    /// A gauge in seconds for each value of a label.
    pub(super) fn labelled_seconds<'v>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'v str, f64)>,
    ) {
        let values = values.into_iter();
        let values = values.map(|(text, seconds)| labelled(gauge(seconds), label, text));
        self.family(name, help, MetricType::GAUGE, values.collect());
    }

    /// A counter for each value of a label.
    pub(super) fn labelled_counter<'v>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'v str, u64)>,
    ) {
        let values = values.into_iter();
        let values = values.map(|(text, value)| labelled(counter(value as f64), label, text));
        self.family(name, help, MetricType::COUNTER, values.collect());
    }

    /// How values are distributed.
    pub(super) fn histogram(&mut self, name: &str, help: &str, values: &Histogram, unit: Unit) {
        let scale = |number: u64| match unit {
            Unit::Nanos => number as f64 / 1e9,
            Unit::One => number as f64,
        };
        let bucket = |(bound, count)| {
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(scale(bound));
            bucket.set_cumulative_count(count);
            bucket
        };
        let mut buckets = Buckets::default();
        buckets.set_bucket(values.cumulative().map(bucket).collect());
        buckets.set_sample_count(values.count());
        buckets.set_sample_sum(scale(values.sum()));
        let mut metric = Metric::default();
        metric.set_histogram(buckets);
        self.family(name, help, MetricType::HISTOGRAM, vec![metric]);
    }

    /// The page as text.
    pub(super) fn text(&self) -> String {
        TextEncoder::new()
            .encode_to_string(&self.0)
            .expect("writing to a string does not fail, and every family has a name and a value")
    }

    /// A family without values is left out.
    fn family(&mut self, name: &str, help: &str, kind: MetricType, metrics: Vec<Metric>) {
        if metrics.is_empty() {
            return;
        }
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(metrics);
        self.0.push(family);
    }
}

fn gauge(value: f64) -> Metric {
    let mut gauge = Gauge::default();
    gauge.set_value(value);
    Metric::from_gauge(gauge)
}

fn counter(value: f64) -> Metric {
    let mut counter = Counter::default();
    counter.set_value(value);
    let mut metric = Metric::default();
    metric.set_counter(counter);
    metric
}

fn labelled(mut metric: Metric, label: &str, value: &str) -> Metric {
    let mut pair = LabelPair::default();
    pair.set_name(label.to_owned());
    pair.set_value(value.to_owned());
    metric.set_label(vec![pair]);
    metric
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_text() {
        let mut page = Page::default();
        page.counter("a_total", "A.", 3);
        page.labelled_gauge("b", "B.", "peer", [("x:1", 1), ("y\"\n", 0)]);
        page.labelled_gauge("none", "None.", "peer", []);
        page.known_gauge("unknown", "Unknown.", None);
        let mut values = Histogram::new(&[500_000_000, 1_000_000_000]);
        values.observe(400_000_000);
        values.observe(2_000_000_000);
        page.histogram("c_seconds", "C.", &values, Unit::Nanos);
        let expected = "\
# HELP a_total A.
# TYPE a_total counter
a_total 3
# HELP b B.
# TYPE b gauge
b{peer=\"x:1\"} 1
b{peer=\"y\\\"\\n\"} 0
# HELP c_seconds C.
# TYPE c_seconds histogram
c_seconds_bucket{le=\"0.5\"} 1
c_seconds_bucket{le=\"1\"} 1
c_seconds_bucket{le=\"+Inf\"} 2
c_seconds_sum 2.4
c_seconds_count 2
";
        assert_eq!(page.text(), expected);
    }
}
