//! Krabka's log crate as a peer, without broker and network: one run for each line on stdin, one line on stdout for it.
//!
//! ```text
//! krabka-peer SEGMENT_BYTES
//! first line                     PID/task/TID: its file in /proc counts this thread's waits for a processor
//! open DIR END                   -> SECONDS LOGS BYTES; every partition of DIR, up to END in each
//! leader | follower FETCHES REPEATS DIR
//!                                -> SECONDS RECORDS BYTES; a new log at DIR that begins with the first of FETCHES, not
//!                                measured, then each other batch REPEATS times
//! fetch | read DIR OFFSETS MAX_BYTES
//!                                -> SECONDS FETCHES BYTES; a fetch at each of the offsets, i64 big-endian in a file,
//!                                of at least one batch: as file regions, or with its bytes copied
//! checksum FETCHES REPEATS         -> SECONDS BATCHES BYTES; the header and the checksum of each batch
//! a run that fails               -> error: WHAT
//! ```
//!
//! `FETCHES := (size:i32 batches)*`, big-endian. SECONDS are the processor time of this thread. Closing logs and reading
//! FETCHES and OFFSETS is not measured.

use bytes::Bytes;
use krabka_log::{LeaderEpoch, Log, LogConfig, Offset, VerbatimBatch};
use krabka_protocol::records::validate_one_v2_batch;
use krabka_units::prelude::{ByteSize, ByteSizeExt};
use std::collections::HashMap;
use std::error::Error;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

struct Answer {
    seconds: f64,
    count: u64,
    bytes: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Role {
    Leader,
    Follower,
}

#[derive(Clone, Copy, PartialEq)]
enum Fetch {
    Regions,
    Copies,
}

struct Peer {
    config: LogConfig,
    opened: HashMap<PathBuf, Log>, // opened by the first fetch from it
}

fn main() -> Result<()> {
    let segment_bytes = env::args().nth(1).ok_or("SEGMENT_BYTES is missing")?.parse()?;
    let mut peer = Peer {
        config: LogConfig {
            segment_size: ByteSize::from_bytes(segment_bytes),
            retention: None,
            ..LogConfig::default()
        },
        opened: HashMap::new(),
    };
    println!("{}", fs::read_link("/proc/thread-self")?.display());
    for line in io::stdin().lines() {
        match peer.run(&line?) {
            Ok(Answer { seconds, count, bytes }) => println!("{seconds} {count} {bytes}"),
            Err(failed) => println!("error: {}", failed.to_string().replace('\n', " ")),
        }
    }
    Ok(())
}

impl Peer {
    fn run(&mut self, line: &str) -> Result<Answer> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["open", root, end] => self.open(Path::new(root), Offset(end.parse()?)),
            ["leader", file, repeats, directory] => {
                self.append(Role::Leader, &batches(file)?, repeats.parse()?, directory)
            }
            ["follower", file, repeats, directory] => {
                self.append(Role::Follower, &batches(file)?, repeats.parse()?, directory)
            }
            ["fetch", directory, file, max_bytes] => {
                self.fetch(Fetch::Regions, directory, &offsets(file)?, max_bytes.parse()?)
            }
            ["read", directory, file, max_bytes] => {
                self.fetch(Fetch::Copies, directory, &offsets(file)?, max_bytes.parse()?)
            }
            ["checksum", file, repeats] => checksum(&batches(file)?, repeats.parse()?),
            _ => Err(format!("no such task: {line}").into()),
        }
    }

    fn open(&self, root: &Path, end: Offset) -> Result<Answer> {
        let mut directories: Vec<PathBuf> = fs::read_dir(root)?
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<Vec<_>>>()?;
        directories.retain(|path| path.is_dir());
        directories.sort();
        let mut logs = Vec::with_capacity(directories.len());
        let started = processor_seconds();
        for directory in &directories {
            logs.push(Log::open(directory, self.config.clone())?);
        }
        let seconds = processor_seconds() - started;
        if let Some(log) = logs.iter().find(|log| log.log_end_offset() != end) {
            return Err(format!("a log ends at {}", log.log_end_offset()).into());
        }
        Ok(Answer {
            seconds,
            count: logs.len() as u64,
            bytes: logs.iter().map(|log| log.size().bytes_u64()).sum(),
        })
    }

    fn append(&self, role: Role, batches: &[Bytes], repeats: u32, directory: &str) -> Result<Answer> {
        let (first, batches) = batches.split_first().ok_or("no batches")?;
        let mut log = Log::open(directory, self.config.clone())?;
        lead(&mut log, first)?;
        let mut bytes = 0;
        let began = log.log_end_offset();
        let started = processor_seconds();
        for _ in 0..repeats {
            for batch in batches {
                match role {
                    Role::Leader => lead(&mut log, batch)?,
                    Role::Follower => follow(&mut log, batch)?,
                }
                bytes += batch.len() as u64;
            }
        }
        let seconds = processor_seconds() - started;
        let count = log.log_end_offset().0 - began.0;
        log.sync()?;
        Ok(Answer { seconds, count: count.try_into()?, bytes })
    }

    fn fetch(&mut self, how: Fetch, directory: &str, offsets: &[i64], max_bytes: u64) -> Result<Answer> {
        if !self.opened.contains_key(Path::new(directory)) {
            self.opened.insert(directory.into(), Log::open(directory, self.config.clone())?);
        }
        let log = &self.opened[Path::new(directory)];
        let (end, max_bytes) = (log.log_end_offset(), ByteSize::from_bytes(max_bytes));
        let mut bytes = 0;
        let started = processor_seconds();
        for &offset in offsets {
            bytes += match how {
                Fetch::Regions => black_box(log.read_raw_desc(Offset(offset), end, max_bytes)?).total,
                Fetch::Copies => black_box(log.read_raw(Offset(offset), end, max_bytes)?).total,
            };
        }
        let seconds = processor_seconds() - started;
        Ok(Answer { seconds, count: offsets.len() as u64, bytes: bytes as u64 })
    }
}

/// Appends a batch as a leader: checks header, checksum and every record; the log assigns its next offset.
fn lead(log: &mut Log, batch: &Bytes) -> Result<()> {
    let checked = validate_one_v2_batch(batch)?;
    checked.validate_records(Default::default())?;
    let mut placed = VerbatimBatch::from_header(checked.header, batch.clone());
    placed.leader_epoch = LeaderEpoch(0);
    log.append_verbatim(&placed)?;
    Ok(())
}

/// Appends a batch as a follower at the log end: checks header and checksum.
fn follow(log: &mut Log, batch: &Bytes) -> Result<()> {
    let checked = validate_one_v2_batch(batch)?;
    let mut placed = VerbatimBatch::from_header(checked.header, batch.clone());
    placed.leader_epoch = LeaderEpoch(0);
    let end = log.log_end_offset();
    log.append_verbatim_at(&placed, end)?;
    Ok(())
}

fn checksum(batches: &[Bytes], repeats: u32) -> Result<Answer> {
    let (mut count, mut bytes) = (0, 0);
    let started = processor_seconds();
    for _ in 0..repeats {
        for batch in batches {
            bytes += black_box(validate_one_v2_batch(black_box(batch))?).total_len as u64;
            count += 1;
        }
    }
    Ok(Answer { seconds: processor_seconds() - started, count, bytes })
}

/// Returns each batch of the fetches.
fn batches(file: &str) -> Result<Vec<Bytes>> {
    let mut rest: Bytes = fs::read(file)?.into();
    let mut found = Vec::new();
    while !rest.is_empty() {
        let size = i32::from_be_bytes(rest.split_to(4)[..].try_into()?);
        let mut fetch = rest.split_to(size.try_into()?);
        while !fetch.is_empty() {
            let size = validate_one_v2_batch(&fetch)?.total_len;
            found.push(fetch.split_to(size));
        }
    }
    Ok(found)
}

fn offsets(file: &str) -> Result<Vec<i64>> {
    let bytes = fs::read(file)?;
    Ok(bytes.as_chunks().0.iter().map(|each| i64::from_be_bytes(*each)).collect())
}

/// CLOCK_THREAD_CPUTIME_ID
fn processor_seconds() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on Linux, and `now` lives through the call.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) }, 0);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}
