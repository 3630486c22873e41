//! JSON with gaps to fill in.

/// A text with slots, written `$(name)`.
pub(super) struct Template {
    /// What stands before each slot, and the slot's name.
    parts: Vec<(String, &'static str)>,
    rest: String,
}

impl Template {
    /// Reads JSON; what stands between its tokens is left out, as the API server leaves it out.
    pub(super) fn new(json: &'static str) -> Self {
        let mut parts = Vec::new();
        let mut rest = json;
        while let Some((before, after)) = rest.split_once("$(") {
            let (slot, after) = after.split_once(')').unwrap_or((after, ""));
            parts.push((before, slot));
            rest = after;
        }
        let mut in_text = false;
        let mut dense = |text: &str| dense(text, &mut in_text);
        let parts = parts.into_iter().map(|(before, slot)| (dense(before), slot)).collect();
        Self { parts, rest: dense(rest) }
    }

    pub(super) fn render<'a>(&self, value: impl Fn(&str) -> &'a str) -> String {
        let mut out = String::with_capacity(8 * 1024);
        for (before, slot) in &self.parts {
            out.push_str(before);
            out.push_str(value(slot));
        }
        out.push_str(&self.rest);
        out.shrink_to_fit();
        out
    }
}

/// JSON without the white space between its tokens. `in_text`: whether it begins, and then ends,
/// within a string.
fn dense(json: &str, in_text: &mut bool) -> String {
    let mut escaped = false;
    let significant = |c: &char| {
        match *c {
            '"' if !escaped => *in_text = !*in_text,
            _ if !*in_text && c.is_ascii_whitespace() => return false,
            _ => {}
        }
        escaped = *c == '\\' && !escaped;
        true
    };
    json.chars().filter(significant).collect()
}
