//! The files that sinks write: each has one of its own, and the journal none of them.

use std::any::Any;

use super::Builder;
use crate::{
    config::settings::SinkSettings,
    document::{Path, wrong},
    sinks::FileOptions,
};

impl Builder<'_> {
    pub(super) fn check_files(&mut self, sinks: &[SinkSettings], journal: &std::path::Path) {
        let mut known: Vec<(&str, &std::path::Path)> = Vec::new();
        for sink in sinks {
            let options: &dyn Any = &*sink.sink;
            let Some(FileOptions { path: file, .. }) = options.downcast_ref() else { continue };
            // One that is not known is on the list already, or in a secret that is not here.
            if file.as_os_str().is_empty() {
                continue;
            }
            let path = Path::root("sinks").key(&sink.name).key("file").key("path");
            if let Some((other, _)) = known.iter().find(|(_, known)| known == file) {
                let wrong = wrong(format!("expected a file of its own, found that of `{other}`"));
                self.checks.wrong(&path, wrong.hint("write another path"));
            }
            if !journal.as_os_str().is_empty() && file.starts_with(journal) {
                let wrong = wrong("expected a file elsewhere, found one in `journal.path`");
                self.checks.wrong(&path, wrong.hint("write a path on another volume"));
            }
            known.push((&sink.name, file));
        }
    }
}
