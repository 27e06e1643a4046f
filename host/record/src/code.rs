//! Numbers and texts as bytes. Reading answers what is wrong, and never takes more memory than a few times its input.

/// What is wrong with the bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) String);

impl Malformed {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

/// Largest whole number that each smaller one is exact up to.
const EXACT: f64 = (1_u64 << 53) as f64;
/// What stands for a number that is not whole; its bits follow.
const BITS: u64 = 1;

/// Appends.
#[derive(Debug, Default)]
pub(crate) struct Out(pub(crate) Vec<u8>);

impl Out {
    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Seven bits a byte, the lowest first.
    pub(crate) fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    pub(crate) fn size(&mut self, size: usize) {
        self.varint(size as u64);
    }

    pub(crate) fn signed(&mut self, value: i64) {
        self.varint(zigzag(value));
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.size(text.len());
        self.0.extend_from_slice(text.as_bytes());
    }

    pub(crate) fn texts<'a>(&mut self, texts: impl ExactSizeIterator<Item = &'a str>) {
        self.size(texts.len());
        texts.for_each(|text| self.text(text));
    }

    pub(crate) fn bits(&mut self, value: f64) {
        self.0.extend_from_slice(&value.to_bits().to_le_bytes());
    }

    /// A number, to the bit: where it is whole, as its distance from `base`.
    pub(crate) fn number(&mut self, value: f64, base: f64) {
        match whole(value) {
            Some(whole_value) => self.varint(zigzag(whole_value - whole(base).unwrap_or(0)) << 1),
            None => {
                self.varint(BITS);
                self.bits(value);
            }
        }
    }
}

fn whole(value: f64) -> Option<i64> {
    let whole = value.fract() == 0.0 && value.abs() <= EXACT && !(value == 0.0 && value.is_sign_negative());
    whole.then_some(value as i64)
}

const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Reads what [`Out`] wrote, or whatever else is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct In<'a>(pub(crate) &'a [u8]);

type Read<T> = Result<T, Malformed>;

impl<'a> In<'a> {
    fn take(&mut self, bytes: usize) -> Read<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or_else(|| Malformed::new("it ends in the middle"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn byte(&mut self) -> Read<u8> {
        self.take(1).map(|bytes| bytes.first().copied().unwrap_or_default())
    }

    pub(crate) fn varint(&mut self) -> Read<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed::new("a number has more than 64 bits"))
    }

    /// How many things of at least one byte each follow.
    pub(crate) fn size(&mut self) -> Read<usize> {
        let size = self.varint()?;
        usize::try_from(size)
            .ok()
            .filter(|size| *size <= self.0.len())
            .ok_or_else(|| Malformed::new("a list is longer than what follows"))
    }

    pub(crate) fn signed(&mut self) -> Read<i64> {
        self.varint().map(unzigzag)
    }

    pub(crate) fn small(&mut self) -> Read<u32> {
        u32::try_from(self.varint()?).map_err(|_| Malformed::new("a number has more than 32 bits"))
    }

    pub(crate) fn text(&mut self) -> Read<String> {
        let size = self.size()?;
        let text = std::str::from_utf8(self.take(size)?).map_err(|_| Malformed::new("a text is not UTF-8"))?;
        Ok(text.to_owned())
    }

    pub(crate) fn texts(&mut self) -> Read<Vec<String>> {
        let size = self.size()?;
        (0..size).map(|_| self.text()).collect()
    }

    pub(crate) fn bits(&mut self) -> Read<f64> {
        let mut bytes = [0; 8];
        bytes.iter_mut().zip(self.take(8)?).for_each(|(to, from)| *to = *from);
        Ok(f64::from_bits(u64::from_le_bytes(bytes)))
    }

    pub(crate) fn number(&mut self, base: f64) -> Read<f64> {
        let code = self.varint()?;
        if code & BITS == 0 {
            return Ok(whole(base).unwrap_or(0).wrapping_add(unzigzag(code >> 1)) as f64);
        }
        self.bits()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn numbers_come_back_to_the_bit() {
        let numbers = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            1e300,
            -1e300,
            EXACT,
            -EXACT,
            EXACT + 2.0,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::MIN_POSITIVE,
            5e-324,
            f64::from_bits(0x7ff8_0000_0000_0000),
            f64::from_bits(0xfff8_0000_0000_0001),
        ];
        for base in numbers {
            for number in numbers {
                let mut out = Out::default();
                out.number(number, base);
                let mut read = In(&out.0);
                assert_eq!(read.number(base).unwrap().to_bits(), number.to_bits(), "{number} from {base}");
                assert!(read.0.is_empty());
            }
        }
        for number in [0, 1, 127, 128, u64::MAX] {
            let mut out = Out::default();
            out.varint(number);
            assert_eq!(In(&out.0).varint(), Ok(number));
        }
        for number in [0, -1, 1, i64::MIN, i64::MAX] {
            assert_eq!(unzigzag(zigzag(number)), number);
        }
    }

    #[test]
    fn a_list_is_no_longer_than_the_bytes_that_follow() {
        let mut out = Out::default();
        out.varint(u64::MAX);
        assert!(In(&out.0).texts().is_err());
    }
}
