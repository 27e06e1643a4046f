//! Frames: a record is a row of them, each whole in itself, so that what is left of a cut file can be read.
//!
//! A frame is a mark, a head of fixed size and a compressed body. The head carries a checksum over itself and the body.

use sha2::{Digest, Sha256};

use crate::error::RecordError;

const MARK: [u8; 8] = *b"\x89PMREC\r\n";
pub(crate) const FORMAT: u16 = 1;
/// Mark, format, kind, number, sizes, checksum.
pub(crate) const HEAD_BYTES: usize = 8 + 2 + 1 + 4 + 4 + 4 + 8;
/// The largest body before compression.
pub(crate) const MOST_RAW_BYTES: usize = 64 << 20;
/// Of the compression: fast, since it may run while a decision waits.
const LEVEL: u8 = 3;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Decisions.
    Decisions,
    /// The end of the whole record.
    Complete,
    /// The end of a record that reached its largest size.
    Full,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Decisions, Self::Complete, Self::Full];
}

pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) number: u32,
    pub(crate) body: Vec<u8>,
}

impl Frame {
    pub(crate) fn write(kind: Kind, number: u32, body: &[u8]) -> Vec<u8> {
        let packed = miniz_oxide::deflate::compress_to_vec(body, LEVEL);
        let mut bytes = Vec::with_capacity(HEAD_BYTES + packed.len());
        bytes.extend_from_slice(&MARK);
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.push(kind as u8);
        for number in [number, body.len() as u32, packed.len() as u32] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        let check = checksum(&bytes, &packed);
        bytes.extend_from_slice(&check);
        bytes.extend_from_slice(&packed);
        bytes
    }

    /// The frame that `bytes` begin with and its length; none where they begin with no whole one.
    fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, RecordError> {
        let Some((head, rest)) = bytes.split_at_checked(HEAD_BYTES) else { return Ok(None) };
        let (signed, check) = head.split_at(HEAD_BYTES - 8);
        let number_at = |at: usize, bytes: usize| {
            let digits = signed.get(at..at + bytes).unwrap_or_default();
            digits.iter().rev().fold(0_u32, |number, digit| (number << 8) | u32::from(*digit))
        };
        let (raw_bytes, packed_bytes) = (number_at(15, 4) as usize, number_at(19, 4) as usize);
        let Some(packed) = rest.get(..packed_bytes).filter(|_| signed.starts_with(&MARK)) else { return Ok(None) };
        if checksum(signed, packed) != check {
            return Ok(None);
        }
        let format = number_at(8, 2) as u16;
        if format != FORMAT {
            return Err(RecordError::Format { found: format, reads: FORMAT });
        }
        let kind = Kind::ALL.get(number_at(10, 1) as usize);
        let body = miniz_oxide::inflate::decompress_to_vec_with_limit(packed, raw_bytes.min(MOST_RAW_BYTES));
        match (kind, body) {
            (Some(kind), Ok(body)) if body.len() == raw_bytes => {
                Ok(Some((Self { kind: *kind, number: number_at(11, 4), body }, HEAD_BYTES + packed_bytes)))
            }
            _ => Ok(None),
        }
    }
}

/// The first bytes of SHA-256: it tells chance from intent no better than a short sum, and is there already.
fn checksum(head: &[u8], packed: &[u8]) -> [u8; 8] {
    let digest = Sha256::new().chain_update(head).chain_update(packed).finalize();
    let mut check = [0; 8];
    check.iter_mut().zip(digest.as_slice()).for_each(|(to, from)| *to = *from);
    check
}

/// The whole frames of a file, in order. What lies between two of them is passed over and counted.
pub(crate) struct Frames<'a> {
    bytes: &'a [u8],
    /// Bytes that belong to no whole frame, but for a frame that the file ends in.
    pub(crate) passed: u64,
}

impl<'a> Frames<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, passed: 0 }
    }
}

impl Iterator for Frames<'_> {
    type Item = Result<Frame, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let start = self.bytes.windows(MARK.len()).position(|window| window == MARK)?;
            self.passed += start as u64;
            self.bytes = self.bytes.get(start..).unwrap_or_default();
            match Frame::read(self.bytes) {
                Ok(Some((frame, length))) => {
                    self.bytes = self.bytes.get(length..).unwrap_or_default();
                    return Some(Ok(frame));
                }
                Ok(None) => {
                    let later = self.bytes.get(1..).unwrap_or_default();
                    // A mark that no other one follows may be the frame that a crash cut.
                    if later.windows(MARK.len()).any(|window| window == MARK) {
                        self.passed += 1;
                    }
                    self.bytes = later;
                }
                Err(error) => {
                    self.bytes = &[];
                    return Some(Err(error));
                }
            }
        }
    }
}
