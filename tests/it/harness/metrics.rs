//! A page of metrics, read strictly: what Prometheus' own linter would complain about is an error
//! here.

use std::collections::BTreeMap;

use super::http::get;

/// Endings by which a name says its unit.
const UNITS: [&str; 2] = ["_seconds", "_bytes"];

/// A page, checked: every series with its value.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// Name and labels as they stand on the page -> value.
    pub(crate) series: BTreeMap<String, f64>,
    /// Name of a family -> kind.
    pub(crate) families: BTreeMap<String, String>,
}

impl Page {
    /// The page of a server.
    pub(crate) fn of(admin: &str) -> Self {
        let answer = get(admin, "/metrics");
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.head.contains("text/plain; version=0.0.4"));
        Self::read(&answer.body)
    }

    /// Reads and checks a page.
    pub(crate) fn read(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line ends, too");
        let mut page = Self {
            series: BTreeMap::new(),
            families: BTreeMap::new(),
        };
        let mut family = (String::new(), String::new());
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, sentence) = help.split_once(' ').expect("a help text");
                assert!(sentence.ends_with('.'), "{line}");
                let kind = lines.next().expect("a type follows its help");
                let kind = kind.strip_prefix("# TYPE ").expect("a type");
                let (typed, kind) = kind.split_once(' ').expect("a kind");
                assert_eq!(typed, name);
                check_name(name, kind);
                let before = page.families.insert(name.to_owned(), kind.to_owned());
                assert_eq!(before, None, "{name} is there twice");
                family = (name.to_owned(), kind.to_owned());
                continue;
            }
            let (series, value) = line.rsplit_once(' ').expect("a sample");
            let name = series.split('{').next().unwrap_or_default();
            let belongs = match family.1.as_str() {
                "histogram" => ["_bucket", "_sum", "_count"]
                    .iter()
                    .any(|part| name == format!("{}{part}", family.0)),
                _ => name == family.0,
            };
            assert!(belongs, "{series} stands under {family:?}");
            let value: f64 = value.parse().expect("a number");
            assert!(value >= 0.0, "{line}");
            let before = page.series.insert(series.to_owned(), value);
            assert_eq!(before, None, "{series} is there twice");
        }
        page.check_histograms(text);
        page
    }

    /// Buckets grow, and the last one is the count.
    fn check_histograms(&self, text: &str) {
        let histograms = self
            .families
            .iter()
            .filter(|(_, kind)| *kind == "histogram");
        for (name, _) in histograms {
            let begin = format!("{name}_bucket{{");
            let buckets: Vec<f64> = text
                .lines()
                .filter(|line| line.starts_with(&begin))
                .map(|line| self.series[line.rsplit_once(' ').expect("a sample").0])
                .collect();
            assert!(
                buckets.len() > 5 && buckets.is_sorted(),
                "{name}: {buckets:?}"
            );
            let last = format!("{name}_bucket{{le=\"+Inf\"}}");
            assert_eq!(self.series[&last], self.get(&format!("{name}_count")));
        }
    }

    /// The value of a series that is there.
    pub(crate) fn get(&self, series: &str) -> f64 {
        let value = self.series.get(series).copied();
        value.unwrap_or_else(|| panic!("{series} is not among {:#?}", self.series.keys()))
    }

    /// The names of all series, without their values.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.series.keys().map(String::as_str).collect()
    }
}

/// Beginnings of names: ours, and the one of what every process has.
pub(crate) const PREFIXES: [&str; 2] = ["ticketing_", "process_"];

fn check_name(name: &str, kind: &str) {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let begins = PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    assert!(begins && name.chars().all(plain), "{name}");
    let total = name.ends_with("_total");
    assert_eq!(
        total,
        kind == "counter",
        "only counters end in _total: {name}"
    );
    let stem = name.strip_suffix("_total").unwrap_or(name);
    for other in [
        "_milliseconds",
        "_ms",
        "_nanoseconds",
        "_kilobytes",
        "_count",
        "_sum",
    ] {
        assert!(!stem.ends_with(other), "{name}");
    }
    if kind == "histogram" && name != "ticketing_batch_commands" {
        assert!(
            UNITS.iter().any(|unit| stem.ends_with(unit)),
            "{name} has no unit"
        );
    }
}
