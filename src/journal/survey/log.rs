//! Reading the log through.

use std::{fs, io, path::PathBuf};

use super::{SegmentSurvey, Survey, SurveyError};
use crate::journal::{
    Position,
    disk::RealDisk,
    format::{self, HeaderRead, SegmentHeader},
    gap_detector::GapDetector,
    recovery::read_header,
    scan::Scanner,
};

struct Listed {
    first: u64,
    path: PathBuf,
    name: String,
}

impl Survey {
    /// Walks every frame of every segment.
    pub(super) fn log(&mut self) -> Result<(), SurveyError> {
        let mut gap_detector = GapDetector::default();
        let mut tail = Position::START;
        let mut begun = false;
        let listed = self.list()?;
        for (at, segment) in listed.iter().enumerate() {
            let file = match fs::File::open(&segment.path) {
                Ok(file) => file,
                // Retired since it was listed.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(SurveyError::of(&segment.path)(e)),
            };
            let length = file.metadata().map_err(SurveyError::of(&segment.path))?.len();
            let header = match read_header(&RealDisk, &file, length) {
                Ok(HeaderRead::Whole(header, end)) => Some((header, end)),
                Ok(HeaderRead::Newer(version)) => {
                    let what = format!("it is of the newer format {version}");
                    self.problem(&segment.name, Some(0), what);
                    continue;
                }
                Ok(HeaderRead::Damaged) | Err(_) => None,
            };
            self.enter(segment, header.as_ref(), &mut gap_detector, &mut tail, begun);
            begun = true;
            let start = header.map_or(0, |(_, end)| end);
            let limit = listed.get(at + 1).map(|next| next.first);
            let mut survey = SegmentSurvey {
                file: segment.name.clone(),
                bytes: length,
                first_sequence: segment.first,
                ..SegmentSurvey::default()
            };
            let mut scanner = Scanner::default();
            scanner.restart(start);
            let mut end = start;
            loop {
                let (offset, frame) = match scanner.next(&RealDisk, &file, length) {
                    Ok(Some(found)) => found,
                    Ok(None) => break,
                    Err(error) => {
                        self.problem(&segment.name, Some(scanner.offset()), error.to_string());
                        break;
                    }
                };
                if limit.is_some_and(|limit| frame.next() > limit) || !tail.admits(&frame) {
                    continue;
                }
                if let Some(damage) = gap_detector.frame(offset, &frame) {
                    self.damage(&damage);
                }
                end = offset + frame.bytes() as u64;
                tail = frame.end();
                survey.frames += 1;
                survey.records += u64::from(frame.count());
                survey.from_ms.get_or_insert(frame.time_ms);
                survey.to_ms = survey.to_ms.max(Some(frame.time_ms));
                self.sources.insert(frame.source.to_string(), frame.resume);
            }
            self.segments.push(survey);
            if limit.is_none() {
                self.torn_bytes = length.saturating_sub(end);
            } else if end < length {
                let what = format!("{} bytes at the end cannot be read", length - end);
                self.problem(&segment.name, Some(end), what);
            }
        }
        self.next_sequence = tail.next;
        Ok(())
    }

    fn list(&mut self) -> Result<Vec<Listed>, SurveyError> {
        let mut listed = Vec::new();
        for entry in
            fs::read_dir(&self.path).map_err(SurveyError::of(&self.path.clone()))?.flatten()
        {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(first) = format::segment_first(&name) else { continue };
            if entry.path().is_dir() {
                self.problem(&name, None, "it is no file".to_owned());
                continue;
            }
            listed.push(Listed { first, path: entry.path(), name });
        }
        listed.sort_unstable_by_key(|segment| segment.first);
        Ok(listed)
    }

    /// Goes on in a segment: is something missing before it?
    fn enter(
        &mut self,
        segment: &Listed,
        header: Option<&(SegmentHeader, u64)>,
        gap_detector: &mut GapDetector,
        tail: &mut Position,
        begun: bool,
    ) {
        let Some((header, start)) = header else {
            self.problem(&segment.name, Some(0), "its header cannot be read".to_owned());
            if !begun {
                // What was before it is not known.
                *tail = Position { next: segment.first, skipped: 0 };
            }
            gap_detector.enter(segment.name.clone(), 0, *tail, 0);
            return;
        };
        let here = Position { next: header.first, skipped: header.skipped };
        if begun
            && let Some(damage) = gap_detector.leave(gap_detector.offset(), here, header.newest_ms)
        {
            self.damage(&damage);
        }
        *tail = here;
        gap_detector.enter(segment.name.clone(), *start, here, header.newest_ms);
        for (source, resume) in &header.resume {
            self.sources.insert(source.clone(), *resume);
        }
        if header.cluster.is_some() {
            self.cluster_uid.clone_from(&header.cluster);
        }
    }
}
