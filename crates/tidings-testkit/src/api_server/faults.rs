//! What the server can be told to do wrong.

use std::time::Duration;

use crate::http::Ending;

/// Which requests a fault applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum On {
    Any,
    List,
    Watch,
    /// A single object, for instance the namespace kube-system.
    Get,
    /// Create, update, patch or delete.
    Write,
}

impl On {
    /// The same for one resource, by its [name](super::Resource::name): `pods`,
    /// `replicasets.apps`.
    pub fn of(self, resource: &str) -> Scope {
        Scope { on: self, resource: Some(resource.to_owned()) }
    }
}

/// Which requests a fault applies to: those of a sort, of any resource or of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    on: On,
    resource: Option<String>,
}

impl From<On> for Scope {
    fn from(on: On) -> Self {
        Self { on, resource: None }
    }
}

impl Scope {
    fn fits(&self, on: On, resource: Option<&str>) -> bool {
        (self.on == On::Any || self.on == on)
            && (self.resource.is_none() || self.resource.as_deref() == resource)
    }
}

/// Where in a stream it is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Place {
    BetweenLines,
    MidLine,
    /// After the first byte of a character of several, if the line has one; else mid-line.
    MidCharacter,
}

/// What happens to a stream (or the items of a list) after some events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamFault {
    /// It is cut.
    Cut(Place, Ending),
    /// No byte comes any more, and the connection stays open.
    Stall,
    /// An ERROR event 410 Expired, then the end; only on a watch.
    Expired,
    /// An ERROR event 500 InternalError, then the end; only on a watch.
    InternalError,
    /// This line as it is, then the stream goes on; only on a watch.
    Line(String),
    /// A BOOKMARK, then the stream goes on; only on a watch.
    Bookmark,
}

impl StreamFault {
    /// A line that is no JSON.
    pub fn garbage() -> Self {
        Self::Line("}{ not JSON \u{2026}".to_owned())
    }

    /// An ERROR event 429, as of an API server that is overloaded.
    pub fn too_many_requests() -> Self {
        let line = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too many requests, please try again later","reason":"TooManyRequests","code":429}}"#;
        Self::Line(line.to_owned())
    }

    /// An object of another kind.
    pub fn wrong_kind() -> Self {
        let line = r#"{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"stray","namespace":"shop","uid":"7a1c3f0e-0000-4000-8000-000000000001","resourceVersion":"1"},"spec":{},"status":{}}}"#;
        Self::Line(line.to_owned())
    }
}

/// What goes wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 401.
    Unauthorized,
    /// 403, naming the verb and the resource.
    Forbidden,
    /// 429 in plain text with `Retry-After`, as priority and fairness answers.
    TooManyRequests {
        /// Whole seconds.
        retry_after: u64,
    },
    /// 500 as a Status.
    InternalError,
    /// 503 as a Status.
    Unavailable,
    /// A page in HTML, as from a proxy in front of the server.
    Html {
        /// The HTTP status code; 200 happens.
        code: u16,
    },
    /// 410 Expired as the answer itself; for a watch from a version too old, as older servers do.
    Gone,
    /// The connection is reset before an answer.
    Reset,
    /// No answer comes, ever.
    Hang,
    /// The answer comes late.
    Delay(Duration),
    /// On a watch: 200, and the stream ends at once and empty.
    EmptyStream,
    /// Something happens in the stream, or within the items of a list.
    Stream {
        /// How many events or items come before.
        after: usize,
        /// What then.
        then: StreamFault,
    },
    /// Bytes come slowly.
    Slow {
        /// At this rate.
        bytes_per_second: usize,
    },
}

/// Names a fault that was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultId(u64);

#[derive(Debug)]
struct Rule {
    scope: Scope,
    fault: Fault,
    left: Option<u32>,
    hits: u64,
}

/// The faults that are set. The oldest that fits applies to a request.
#[derive(Debug, Default)]
pub(super) struct Faults {
    rules: Vec<Rule>,
}

impl Faults {
    /// Sets a fault for the next `times` requests that fit, or until it is cleared.
    pub(super) fn set(&mut self, scope: Scope, times: Option<u32>, fault: Fault) -> FaultId {
        self.rules.push(Rule { scope, fault, left: times, hits: 0 });
        FaultId(self.rules.len() as u64 - 1)
    }

    /// How often a fault applied.
    pub(super) fn hits(&self, id: FaultId) -> u64 {
        usize::try_from(id.0).ok().and_then(|at| self.rules.get(at)).map_or(0, |rule| rule.hits)
    }

    /// Ends a fault.
    pub(super) fn clear(&mut self, id: FaultId) {
        if let Some(rule) = usize::try_from(id.0).ok().and_then(|at| self.rules.get_mut(at)) {
            rule.left = Some(0);
        }
    }

    /// Ends all of them; their counts stay.
    pub(super) fn clear_all(&mut self) {
        self.rules.iter_mut().for_each(|rule| rule.left = Some(0));
    }

    /// The fault for a request, counted.
    pub(super) fn take(&mut self, on: On, resource: Option<&str>) -> Option<Fault> {
        let rule = self
            .rules
            .iter_mut()
            .find(|rule| rule.left != Some(0) && rule.scope.fits(on, resource))?;
        rule.hits += 1;
        rule.left = rule.left.map(|left| left - 1);
        Some(rule.fault.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_apply_in_order_as_often_as_told() {
        let mut faults = Faults::default();
        let twice = faults.set(On::List.into(), Some(2), Fault::Gone);
        let always = faults.set(On::Any.into(), None, Fault::Hang);
        let taken: Vec<_> = [On::List, On::Watch, On::List, On::List]
            .into_iter()
            .map(|on| faults.take(on, Some("events")))
            .collect();
        let expected = [Fault::Gone, Fault::Hang, Fault::Gone, Fault::Hang].map(Some);
        assert_eq!(taken, expected);
        assert_eq!((faults.hits(twice), faults.hits(always)), (2, 2));
        faults.clear(always);
        assert_eq!(faults.take(On::Write, None), None);
    }

    #[test]
    fn a_fault_of_one_resource_leaves_others_alone() {
        let mut faults = Faults::default();
        faults.set(On::List.of("pods"), None, Fault::Gone);
        assert_eq!(faults.take(On::List, Some("events")), None);
        assert_eq!(faults.take(On::Watch, Some("pods")), None);
        assert_eq!(faults.take(On::List, None), None);
        assert_eq!(faults.take(On::List, Some("pods")), Some(Fault::Gone));
    }
}
