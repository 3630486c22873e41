//! The text format of Prometheus, 0.0.4, made of OpenMetrics: for whoever does not ask for that.

use std::fmt::Write as _;

/// The content type of the format.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The same metrics: there a counter and an info are named as their samples are, an info is a gauge, and there are
/// neither units nor an end.
pub(super) fn of_openmetrics(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    let mut help = "";
    for line in openmetrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                _ => ("", kind),
            };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}");
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_format_names_counters_and_infos_as_their_samples() {
        let openmetrics = "\
# HELP tidings_build The version that runs.
# TYPE tidings_build info
tidings_build_info{version=\"0.1.0\"} 1
# HELP tidings_source_gap_seconds Length of all gaps.
# TYPE tidings_source_gap_seconds counter
# UNIT tidings_source_gap_seconds seconds
tidings_source_gap_seconds_total 0.0
# HELP tidings_journal_records Events.
# TYPE tidings_journal_records gauge
tidings_journal_records 7
# EOF
";
        let text = "\
# HELP tidings_build_info The version that runs.
# TYPE tidings_build_info gauge
tidings_build_info{version=\"0.1.0\"} 1
# HELP tidings_source_gap_seconds_total Length of all gaps.
# TYPE tidings_source_gap_seconds_total counter
tidings_source_gap_seconds_total 0.0
# HELP tidings_journal_records Events.
# TYPE tidings_journal_records gauge
tidings_journal_records 7
";
        assert_eq!(of_openmetrics(openmetrics), text);
    }
}
