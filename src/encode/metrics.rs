//! OTLP metrics: OpenMetrics text as an `ExportMetricsServiceRequest`.
//!
//! A counter is a cumulative, monotonic sum under its name without `_total`; an info is a gauge, with `_info`. There is no
//! start time: some counters go on over restarts.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value},
    metrics::v1::{
        AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
        ResourceMetrics, ScopeMetrics, Sum, metric::Data, number_data_point::Value,
    },
    resource::v1::Resource,
};
use prost::Message as _;

const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;

/// How many bytes the metrics of a message may have; servers of gRPC take 4 MiB by default. Only counters can have more,
/// and go in several messages.
const MOST_BYTES: usize = 1 << 20;

/// The messages for a scrape at `now`, in nanoseconds since the epoch.
pub(crate) fn of_openmetrics(
    text: &str,
    resource: &BTreeMap<String, String>,
    now: u64,
) -> Vec<Vec<u8>> {
    let mut requests: Vec<Vec<Metric>> = Vec::new();
    let mut room = 0;
    for metric in metrics(text, now).into_iter().flat_map(halves) {
        let bytes = metric.encoded_len();
        match requests.last_mut() {
            Some(last) if bytes <= room => {
                room -= bytes;
                last.push(metric);
            }
            _ => {
                room = MOST_BYTES.saturating_sub(bytes);
                requests.push(vec![metric]);
            }
        }
    }
    let attributes = resource.iter().map(|(key, value)| attribute(key, value.clone()));
    let resource = Resource { attributes: attributes.collect(), ..Resource::default() };
    let scope = InstrumentationScope {
        name: env!("CARGO_PKG_NAME").to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Default::default()
    };
    let message = |metrics| {
        let scope = Some(scope.clone());
        let scope_metrics = vec![ScopeMetrics { scope, metrics, ..ScopeMetrics::default() }];
        let resource = Some(resource.clone());
        let metrics = ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() };
        ExportMetricsServiceRequest { resource_metrics: vec![metrics] }.encode_to_vec()
    };
    requests.into_iter().map(message).collect()
}

/// A metric, in parts where it is too long for a message.
fn halves(mut metric: Metric) -> Vec<Metric> {
    let long = metric.encoded_len() > MOST_BYTES;
    match metric.data.as_mut() {
        Some(Data::Sum(sum)) if long && sum.data_points.len() > 1 => {
            let points = sum.data_points.split_off(sum.data_points.len() / 2);
            let rest = Data::Sum(Sum { data_points: points, ..*sum });
            let (name, unit) = (metric.name.clone(), metric.unit.clone());
            let description = metric.description.clone();
            let rest = Metric { name, description, unit, data: Some(rest), metadata: Vec::new() };
            [halves(metric), halves(rest)].concat()
        }
        _ => vec![metric],
    }
}

fn metrics(text: &str, now: u64) -> Vec<Metric> {
    let mut metrics: Vec<Metric> = Vec::new();
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name), help) => metrics.push(Metric {
                name: name.to_owned(),
                description: help.unwrap_or_default().to_owned(),
                ..Metric::default()
            }),
            (Some("#"), Some(what @ ("TYPE" | "UNIT")), Some(_), Some(value)) => {
                let Some(metric) = metrics.last_mut() else { continue };
                match (what, value) {
                    ("UNIT", "seconds") => "s".clone_into(&mut metric.unit),
                    ("UNIT", "bytes") => "By".clone_into(&mut metric.unit),
                    ("UNIT", _) => {}
                    (_, "counter") => {
                        let (aggregation_temporality, is_monotonic) = (CUMULATIVE, true);
                        let data_points = Vec::new();
                        let sum = Sum { data_points, aggregation_temporality, is_monotonic };
                        metric.data = Some(Data::Sum(sum));
                    }
                    (_, "histogram") => {
                        let aggregation_temporality = CUMULATIVE;
                        let histogram = Histogram { aggregation_temporality, ..Default::default() };
                        metric.data = Some(Data::Histogram(histogram));
                    }
                    (_, kind) => {
                        // As its sample is called.
                        metric.name += if kind == "info" { "_info" } else { "" };
                        metric.data = Some(Data::Gauge(Gauge::default()));
                    }
                }
            }
            (Some("#"), ..) => {}
            _ => {
                let data = metrics.last_mut().and_then(|metric| metric.data.as_mut());
                if let Some(data) = data
                    && let Some(sample) = Sample::of(line, matches!(data, Data::Histogram(_)))
                {
                    sample.add_to(data, now);
                }
            }
        }
    }
    metrics
}

fn attribute(key: &str, value: String) -> KeyValue {
    let value = Some(AnyValue { value: Some(any_value::Value::StringValue(value)) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

/// A line with a value.
struct Sample<'a> {
    name: &'a str,
    attributes: Vec<KeyValue>,
    /// The upper bound of a bucket.
    bound: Option<f64>,
    value: &'a str,
}

impl<'a> Sample<'a> {
    fn of(line: &'a str, of_histogram: bool) -> Option<Self> {
        let name = &line[..line.find(['{', ' '])?];
        let mut sample = Self { name, attributes: Vec::new(), bound: None, value: "" };
        let mut rest = &line[name.len()..];
        while let Some((key, text)) = rest.trim_start_matches(['{', ',']).split_once("=\"") {
            let (value, after) = unescaped(text)?;
            match key {
                "le" if of_histogram => sample.bound = value.parse().ok(),
                _ => sample.attributes.push(attribute(key, value)),
            }
            rest = after;
        }
        sample.value = rest.trim_start_matches('}').trim();
        Some(sample)
    }

    fn add_to(self, data: &mut Data, now: u64) {
        match data {
            Data::Histogram(histogram) => self.add_to_histogram(histogram, now),
            Data::Sum(Sum { data_points, .. }) | Data::Gauge(Gauge { data_points }) => {
                let float = || self.value.parse().ok().map(Value::AsDouble);
                let value = self.value.parse().ok().map(Value::AsInt).or_else(float);
                data_points.push(NumberDataPoint {
                    attributes: self.attributes,
                    time_unix_nano: now,
                    value,
                    ..NumberDataPoint::default()
                });
            }
            _ => {}
        }
    }

    /// The lines of a point follow one another.
    fn add_to_histogram(self, histogram: &mut Histogram, now: u64) {
        let points = &mut histogram.data_points;
        if points.last().is_none_or(|point| point.attributes != self.attributes) {
            points.push(HistogramDataPoint {
                attributes: self.attributes,
                time_unix_nano: now,
                ..HistogramDataPoint::default()
            });
        }
        let Some(point) = points.last_mut() else { return };
        let count: u64 = self.value.parse().unwrap_or_default();
        match (self.name.rsplit('_').next(), self.bound) {
            (Some("sum"), _) => point.sum = self.value.parse().ok(),
            (Some("count"), _) => point.count = count,
            (_, Some(bound)) => {
                // Here each bucket has what those below it have, too.
                let below: u64 = point.bucket_counts.iter().sum();
                point.bucket_counts.push(count.saturating_sub(below));
                point.explicit_bounds.extend(bound.is_finite().then_some(bound));
            }
            _ => {}
        }
    }
}

/// The value of a label, and what follows the quote behind it.
fn unescaped(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    loop {
        match chars.next()? {
            (at, '"') => return Some((value, &text[at + 1..])),
            (_, '\\') => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            (_, other) => value.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_of_metric_becomes_its_own() {
        let text = r#"# HELP a_bytes Bytes of a.
# TYPE a_bytes gauge
# UNIT a_bytes bytes
a_bytes 1.5
# HELP b Some b.
# TYPE b counter
b_total{sink="x \"y\", {z}\n\\",fate="lost"} 7
b_total{le="3"} 8
# HELP d A version.
# TYPE d info
d_info{version="1"} 1
# HELP c_seconds Time.
# TYPE c_seconds histogram
# UNIT c_seconds seconds
c_seconds_sum{sink="k"} 3.0
c_seconds_count{sink="k"} 3
c_seconds_bucket{le="0.5",sink="k"} 1
c_seconds_bucket{le="2.0",sink="k"} 3
c_seconds_bucket{le="+Inf",sink="k"} 3
# EOF
"#;
        let resource = [("service.name".to_owned(), "tidings".to_owned())].into();
        let messages = of_openmetrics(text, &resource, 9);
        assert_eq!(messages.len(), 1);
        let request = ExportMetricsServiceRequest::decode(&*messages[0]).unwrap();
        let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
        let told: Vec<_> = metrics.iter().map(|m| (&*m.name, &*m.unit, &*m.description)).collect();
        assert_eq!(
            told,
            [
                ("a_bytes", "By", "Bytes of a."),
                ("b", "", "Some b."),
                ("d_info", "", "A version."),
                ("c_seconds", "s", "Time."),
            ]
        );
        let Some(Data::Gauge(gauge)) = &metrics[0].data else { panic!("{:?}", metrics[0]) };
        assert_eq!(gauge.data_points[0].value, Some(Value::AsDouble(1.5)));
        assert_eq!(gauge.data_points[0].time_unix_nano, 9);
        let Some(Data::Sum(sum)) = &metrics[1].data else { panic!("{:?}", metrics[1]) };
        assert!(sum.is_monotonic && sum.aggregation_temporality == CUMULATIVE);
        assert_eq!(sum.data_points[0].value, Some(Value::AsInt(7)));
        let attributes =
            [("sink", "x \"y\", {z}\n\\"), ("fate", "lost")].map(|(k, v)| attribute(k, v.into()));
        assert_eq!(sum.data_points[0].attributes, attributes);
        assert_eq!(sum.data_points[1].attributes, [attribute("le", "3".into())]);
        let Some(Data::Histogram(histogram)) = &metrics[3].data else { panic!("{:?}", metrics[3]) };
        let [point] = &*histogram.data_points else { panic!("{histogram:?}") };
        assert_eq!((point.sum, point.count), (Some(3.0), 3));
        assert_eq!(point.explicit_bounds, [0.5, 2.0]);
        assert_eq!(point.bucket_counts, [1, 2, 0]);
    }
    #[test]
    fn a_long_metric_goes_in_several_messages() {
        let lines = (0..30_000).map(|n| format!("a_total{{pod=\"{n:0100}\"}} {n}\n"));
        let text = format!("# HELP a b\n# TYPE a counter\n{}", lines.collect::<String>());
        let messages = of_openmetrics(&text, &BTreeMap::new(), 9);
        assert!(messages.len() > 3, "{}", messages.len());
        let mut values = Vec::new();
        for message in messages {
            assert!(message.len() < MOST_BYTES + 1000);
            let request = ExportMetricsServiceRequest::decode(&*message).unwrap();
            for metric in &request.resource_metrics[0].scope_metrics[0].metrics {
                let Some(Data::Sum(sum)) = &metric.data else { panic!("{metric:?}") };
                assert!(sum.is_monotonic && metric.name == "a");
                values.extend(sum.data_points.iter().filter_map(|point| point.value));
            }
        }
        assert!(values.into_iter().eq((0..30_000).map(Value::AsInt)));
    }
}
