//! The name of an event.

use jiff::Timestamp;

/// The longest name that the API server takes, in bytes.
const MAX_NAME: usize = 253;

/// client-go `tools/record/util.GenerateEventName`: `<object's name>.<nanoseconds since 1970 in
/// hex>`, which sorts by time and says what it is about. Where that is no valid name (an RBAC
/// object's may hold `:`; a clock before 1970 gives `-`), a random UUID.
pub(super) fn event_name(object_name: &str, now: Timestamp) -> String {
    // Go's UnixNano: 64 bits, which last until 2262.
    let nanos = now.as_nanosecond() as i64;
    let sign = if nanos < 0 { "-" } else { "" };
    let name = format!("{object_name}.{sign}{:x}", nanos.unsigned_abs());
    if is_dns_subdomain(&name) {
        return name;
    }
    uuid::Builder::from_random_bytes(fastrand::u128(..).to_le_bytes()).into_uuid().to_string()
}

/// RFC 1123 as Kubernetes reads it: labels of lower-case letters, digits and `-`, which start and
/// end with a letter or digit, joined by `.`; the whole at most 253 bytes long.
fn is_dns_subdomain(name: &str) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &[u8]| {
        label.first().is_some_and(alphanumeric)
            && label.last().is_some_and(alphanumeric)
            && label.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
    };
    name.len() <= MAX_NAME && name.as_bytes().split(|byte| *byte == b'.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_nanosecond(0x1878_be09_177a_cf95).unwrap()
    }

    fn is_uuid(name: &str) -> bool {
        let uuid = uuid::Uuid::parse_str(name).expect(name);
        uuid.get_version_num() == 4 && uuid.to_string() == name
    }

    #[test]
    fn a_name_says_what_and_when() {
        assert_eq!(event_name("api-7c9", now()), "api-7c9.1878be09177acf95");
        assert_eq!(event_name("a.b-c.9", now()), "a.b-c.9.1878be09177acf95");
        assert_eq!(event_name("web", Timestamp::UNIX_EPOCH), "web.0");
    }

    #[test]
    fn what_cannot_be_part_of_a_name_gives_a_uuid() {
        for name in ["", "TLS", "a_b", "system:node", "-a", "a-", "a..b", ".a", "a.", "ä", "a b"] {
            assert!(is_uuid(&event_name(name, now())), "{name}");
        }
        let before_1970 = Timestamp::from_nanosecond(-1).unwrap();
        assert!(is_uuid(&event_name("web", before_1970)));
        assert_ne!(event_name("", now()), event_name("", now()));
    }

    #[test]
    fn the_longest_object_name_has_236_characters() {
        assert_eq!(event_name(&"a".repeat(236), now()).len(), 253);
        assert!(is_uuid(&event_name(&"a".repeat(237), now())));
    }
}
