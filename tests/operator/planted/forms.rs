//! The forms in which receivers say a text again.

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE},
};

/// A text as it is, percent-encoded, escaped as in JSON and HTML, in base64, alone and within more.
pub(super) fn forms(text: &str) -> Vec<String> {
    let bytes = |form: fn(u8) -> String| text.bytes().map(form).collect::<String>();
    let units: Vec<_> = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
    let percent: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
    let json = serde_json::to_string(text).unwrap();
    let json = json[1..json.len() - 1].to_owned();
    vec![
        text.to_owned(),
        bytes(|byte| format!("%{byte:02x}")),
        bytes(|byte| format!("%{byte:02X}")),
        percent.replace('+', "%20"),
        percent,
        json.replace('/', "\\/"),
        json,
        units.concat(),
        text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;"),
        STANDARD.encode(text),
        URL_SAFE.encode(text),
        STANDARD.encode(format!("user:{text}")),
        STANDARD.encode(format!("authorization: {text}\r\n")),
        wrapped(&STANDARD.encode(format!("{}{text}\r\n", "accept: text/plain\r\n".repeat(2)))),
    ]
}

/// A text in lines, as many programs write base64.
fn wrapped(text: &str) -> String {
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    lines.join("\n")
}

/// All of them in a line, as the words of a refusal.
pub(super) fn words(secrets: &[&str]) -> String {
    words_in_parts::<1>(secrets).concat()
}

/// The same in several lines, which hold all of them together.
pub(super) fn words_in_parts<const PARTS: usize>(secrets: &[&str]) -> [String; PARTS] {
    let all: Vec<String> = secrets.iter().flat_map(|secret| forms(secret)).collect();
    std::array::from_fn(|part| {
        let some = all.iter().skip(part).step_by(PARTS);
        format!("no {}", some.cloned().collect::<Vec<_>>().join(" "))
    })
}
