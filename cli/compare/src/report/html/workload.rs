//! One workload's part of the page: dots with intervals beside their numbers, memory over time, and all numbers.

use super::*;

impl Page<'_> {
    /// In short: HAKMEM to the best peer, or who leads.
    fn verdict(&self, workload: &Workload) -> String {
        let say = |what: &str, measure: Measure| {
            let versus = self.comparison.versus(workload, measure)?;
            let class = match versus.verdict {
                Verdict::Better => "good",
                Verdict::Same => "same",
                Verdict::Worse => "bad",
            };
            let (ratio, peer) = (say::ratio(versus.ratio), escape(versus.peer));
            Some(format!(r#"{what} <span class="{class}">{ratio}×</span> {peer}"#))
        };
        let parts: Vec<String> =
            [say("time", Measure::Time), say("memory", Measure::PeakRss)].into_iter().flatten().collect();
        if parts.is_empty() {
            return String::new();
        }
        format!(r#"<span class="standing">HAKMEM: {}</span>"#, parts.join(", "))
    }

    pub fn workload(&self, at: usize, workload: &Workload) -> String {
        let open = if self.comparison.workloads.len() <= 3 { " open" } else { "" };
        let mut html = format!(
            r#"<details class="workload"{open} data-path="workloads[{at}]"><summary><span
            class="title">{}</span>{}</summary><div class="inside" id="w{at}">"#,
            escape(&workload.name),
            self.verdict(workload)
        );
        let memory = match workload.processes {
            Processes::Main => "",
            Processes::All => " · memory is that of all its processes",
        };
        let speed = match &workload.metric {
            Some(metric) => format!("time is that of one of its {}", escape(&metric.name)),
            None => "time is wall time".to_string(),
        };
        let _ = write!(
            html,
            r#"<p class="note"><code>{}</code><br>{speed} · {}{memory}</p>"#,
            escape(&workload.command.join(" ")),
            say::count(workload.rounds, "round")
        );
        let _ = write!(
            html,
            r#"<div class="pair">{}{}</div><div class="pair charts">"#,
            self.ratio_table(workload, Measure::Time),
            self.ratio_table(workload, Measure::PeakRss)
        );
        let points: Vec<Point> = self
            .names
            .iter()
            .enumerate()
            .filter_map(|(place, name)| {
                let x = self.comparison.ratio(workload, name, Measure::Time).filter(Ratio::is_usable)?;
                let y = self.comparison.ratio(workload, name, Measure::PeakRss).filter(Ratio::is_usable)?;
                Some(Point { place, name, x, y })
            })
            .collect();
        if points.len() > 1 {
            let drawing = self.scatter(
                &format!("w{at}s"),
                &format!("{}: time and peak memory", workload.name),
                (380.0, 300.0),
                false,
                &points,
            );
            let _ = write!(html, r#"<figure><figcaption>Time and peak memory</figcaption>{drawing}</figure>"#);
        }
        if let Some(drawing) = self.memory_over_time(at, workload) {
            let _ = write!(
                html,
                r#"<figure><figcaption>Memory over time <small>each allocator's median
                run</small></figcaption>{drawing}</figure>"#
            );
        }
        html += "</div>";
        html += &self.numbers(at, workload);
        html + "</div></details>"
    }

    /// Dots with intervals, and the numbers beside them, the best first.
    fn ratio_table(&self, workload: &Workload, measure: Measure) -> String {
        let dots = self.dots(workload, measure, true);
        let itself = workload.against_itself(measure);
        let scale =
            Scale::of_ratios(dots.iter().map(|dot| dot.ratio.median).chain(itself.map(|one| one.median)), 3.0, 97.0);
        let resolution = workload.resolution(measure);
        let mut rows: Vec<(f64, String)> = Vec::new();
        for (number, result) in workload.results.iter().enumerate() {
            let (name, place) = (result.allocator.as_str(), self.place(&result.allocator));
            let path = format!(".results[{number}].summary");
            let class = if name == HAKMEM { r#" class="own""# } else { "" };
            let Some(summary) = &result.summary else { continue };
            let Some(ratio) = self.comparison.ratio(workload, name, measure) else {
                continue;
            };
            let dot: Vec<Dot> = dots.iter().filter(|dot| dot.place == place).map(|dot| Dot { ..*dot }).collect();
            let mut row = format!(
                r#"<tr{class} data-path="{path}">{}<td class="plot">{}</td>"#,
                self.who(place, name),
                svg::strip(&scale, resolution, &dot)
            );
            row += &match summary.ratios {
                Some(_) => ratio_cell(&format!(".ratios.{}", measure.field()), &ratio),
                None => r#"<td data-value="1">1.00</td>"#.to_string(),
            };
            row += &self.measured(summary, measure);
            rows.push((ratio.median, row + "</tr>"));
        }
        rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut body: String = rows.into_iter().map(|row| row.1).collect();
        for result in workload.results.iter().filter(|result| result.summary.is_none()) {
            let place = self.place(&result.allocator);
            let why = result.failures.last().map_or("no run", String::as_str);
            let _ = write!(
                body,
                r#"<tr>{}<td class="text" colspan="3">{}</td></tr>"#,
                self.who(place, &result.allocator),
                escape(why)
            );
        }
        if let (Some(ratio), Some(summary)) = (itself, workload.again.as_ref().and_then(|again| again.summary.as_ref()))
        {
            let place = self.place(&self.comparison.baseline);
            let dot = [Dot { place, ratio, interval: true, own: false }];
            let _ = write!(
                body,
                r#"<tr class="again" data-path=".again.summary"><td>{} again <small>A/A</small></td><td
                class="plot">{}</td>{}{}</tr>"#,
                escape(&self.comparison.baseline),
                svg::strip(&scale, resolution, &dot),
                ratio_cell(&format!(".ratios.{}", measure.field()), &ratio),
                self.measured(summary, measure)
            );
        }
        let unit = match (measure, &workload.metric) {
            (Measure::Time, Some(metric)) => metric.name.as_str(),
            (Measure::Time, None) => "wall time",
            _ => "median",
        };
        let title = measure.title();
        let table = format!(
            r#"<table class="dots sortable"><caption>{title} <small>ratio to {}, 95 %
            interval</small></caption><thead><tr><th scope="col">allocator</th><th scope="col"
            class="plot">{}</th><th scope="col">ratio</th><th
            scope="col">{}</th></tr></thead><tbody>{body}</tbody></table>"#,
            escape(&self.comparison.baseline),
            svg::strip_axis(&scale, 36.0),
            escape(unit)
        );
        boxed(&format!("{}: {title}", workload.name), &table)
    }

    /// What the ratio is of.
    fn measured(&self, summary: &Summary, measure: Measure) -> String {
        match (measure, &summary.metric) {
            (Measure::Time, Some(metric)) => number(".metric.median", metric.median, &say::number(metric.median)),
            (Measure::Time, None) => {
                number(".wall_s.median", summary.wall_s.median, &say::seconds(summary.wall_s.median))
            }
            (Measure::PeakRss, _) => number(
                ".peak_rss_bytes.median",
                summary.peak_rss_bytes.median,
                &say::bytes(summary.peak_rss_bytes.median),
            ),
            (Measure::AverageRss, _) => number(
                ".average_rss_bytes.median",
                summary.average_rss_bytes.median,
                &say::bytes(summary.average_rss_bytes.median),
            ),
        }
    }

    /// All that was measured, in one table.
    fn numbers(&self, at: usize, workload: &Workload) -> String {
        let values = workload.value_names();
        let mut head = String::from(r#"<th scope="col">allocator</th><th scope="col">runs</th>"#);
        if let Some(metric) = &workload.metric {
            let _ = write!(head, r#"<th scope="col">{}</th>"#, escape(&metric.name));
        }
        for title in ["wall", "CPU", "CPU ratio", "peak", "average", "average ratio", "minor faults", "faults ratio"] {
            let _ = write!(head, r#"<th scope="col">{title}</th>"#);
        }
        for name in &values {
            let name = escape(name);
            let _ = write!(head, r#"<th scope="col">{name}</th><th scope="col">{name}, ratio</th>"#);
        }
        let mut body = String::new();
        let rows =
            workload.results.iter().enumerate().map(|(number, result)| (format!("results[{number}]"), result, ""));
        for (path, result, note) in
            rows.chain(workload.again.iter().map(|again| ("again".to_string(), again, " again")))
        {
            let Some(summary) = &result.summary else { continue };
            let place = self.place(&result.allocator);
            let class = if result.allocator == HAKMEM && note.is_empty() { r#" class="own""# } else { "" };
            let name = format!("{}{note}", result.allocator);
            let row = format!(".{path}.summary");
            let _ = write!(body, r#"<tr{class} data-path="{row}"><td class="a{place}">{}</td>"#, escape(&name));
            let runs = result.runs.len();
            body += &number(&format!("workloads[{at}].{path}.runs.length"), runs as f64, &runs.to_string());
            if workload.metric.is_some() {
                body +=
                    &summary.metric.map_or("<td></td>".to_string(), |one| spread_cell(".metric", &one, say::number));
            }
            let ratio = |of: fn(&Ratios) -> Ratio, field: &str| match &summary.ratios {
                Some(ratios) => ratio_cell(&format!(".ratios.{field}"), &of(ratios)),
                None => "<td></td>".to_string(),
            };
            body += &spread_cell(".wall_s", &summary.wall_s, say::seconds);
            body += &spread_cell(".cpu_s", &summary.cpu_s, say::seconds);
            body += &ratio(|ratios| ratios.cpu, "cpu");
            body += &spread_cell(".peak_rss_bytes", &summary.peak_rss_bytes, say::bytes);
            body += &spread_cell(".average_rss_bytes", &summary.average_rss_bytes, say::bytes);
            body += &ratio(|ratios| ratios.average_rss, "average_rss");
            body += &spread_cell(".minor_faults", &summary.minor_faults, say::number);
            body += &ratio(|ratios| ratios.minor_faults, "minor_faults");
            for name in &values {
                let key = key(name);
                body += &summary
                    .values
                    .get(*name)
                    .map_or("<td></td>".to_string(), |one| spread_cell(&format!(".values{key}"), one, say::number));
                let ratio = summary.ratios.as_ref().and_then(|ratios| ratios.values.get(*name));
                body += &ratio.map_or("<td></td>".to_string(), |one| ratio_cell(&format!(".ratios.values{key}"), one));
            }
            body += "</tr>";
        }
        let table =
            format!(r#"<table class="wide sortable"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"#);
        let label = format!("{}: all numbers", workload.name);
        format!(
            r#"<details class="more"><summary>All numbers: medians, and from the least to the
            most</summary>{}</details>"#,
            boxed(&label, &table)
        )
    }

    fn memory_over_time(&self, at: usize, workload: &Workload) -> Option<String> {
        let mut all = Vec::new();
        for (place, name) in self.names.iter().enumerate() {
            let Some(result) = workload.result(name) else { continue };
            let mut runs: Vec<&Run> = result.runs.iter().filter(|run| run.rss_over_time.len() > 1).collect();
            runs.sort_by(|a, b| a.wall_s.total_cmp(&b.wall_s));
            let Some(run) = runs.get(runs.len() / 2) else { continue };
            let points = run.rss_over_time.iter().map(|(second, bytes)| (*second, *bytes as f64)).collect();
            all.push(Line { place, name: name.to_string(), points });
        }
        let most = all.iter().flat_map(|line| line.points.iter()).map(|point| point.1).fold(0.0, f64::max);
        (!all.is_empty()).then(|| {
            lines(&Lines {
                id: &format!("w{at}m"),
                title: &format!("{}: resident memory over time", workload.name),
                description:
                    "One line an allocator, from samples of its median run. Peak and average are in the table.".into(),
                x_title: "time →",
                y_title: "resident memory",
                y_unit: say::byte_unit(most),
                x_text: say::seconds,
                y_text: say::bytes,
                dots: false,
                lines: all,
            })
        })
    }
}
