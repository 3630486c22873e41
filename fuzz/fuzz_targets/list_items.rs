//! The body of a list: wherever it is cut, the same items come out of it, and they are those that a
//! JSON parser finds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tidings_kube::reflector::fuzzing::list;

fuzz_target!(|data: &[u8]| {
    let Some((cut, body)) = data.split_first() else { return };
    let (first, second) = body.split_at(usize::from(*cut).min(body.len()));
    let (items, meta) = list(&[body], "EventList");
    let (in_two, meta_in_two) = list(&[first, second], "EventList");
    assert_eq!(meta.is_ok(), meta_in_two.is_ok());
    let Ok((version, token)) = meta else { return };
    assert_eq!((items.clone(), Ok((version, token))), (in_two, meta_in_two));
    // What is no JSON within the items is found when an item is decoded.
    let Ok(Value::Object(whole)) = serde_json::from_slice(body) else { return };
    if let Some(Value::Array(all)) = whole.get("items")
        && body.windows(7).filter(|window| window == b"\"items\"").count() == 1
    {
        let read = |item: &bytes::Bytes| serde_json::from_slice::<Value>(item).ok();
        let of_objects = all.iter().all(Value::is_object);
        if of_objects {
            let items: Vec<_> = items.iter().map(|item| read(item).expect("JSON")).collect();
            assert_eq!(items, *all);
        }
    }
});
