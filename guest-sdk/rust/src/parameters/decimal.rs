//! Decimal digits to the nearest binary number, exactly, by long division.
//!
//! `str::parse` does the same with 13 kB of tables, which every guest of every policy would hold in memory.

use std::cmp::Ordering;

/// A binary format of IEEE 754.
#[derive(Clone, Copy)]
pub(super) struct Format {
    width: u32,
    /// Bits of the significand, the implicit one included.
    precision: i64,
    /// The greatest exponent.
    bias: i64,
}

pub(super) const F32: Format = Format { width: 32, precision: 24, bias: 127 };
pub(super) const F64: Format = Format { width: 64, precision: 53, bias: 1023 };

/// No number halfway between two of a format has more digits than 767.
const MOST_DIGITS: usize = 800;

/// Numbers of 10 to this power overflow every format, and those of its inverse vanish.
const MOST_EXPONENT: i64 = 400;

/// Of numbers of so many digits and powers of ten up to so many, each is exact as an f64.
const EXACT_DIGITS: usize = 15;
const EXACT_POWER: u64 = 22;

/// The bits of the number of the format that is nearest to a number of JSON's grammar, of two the even one; none
/// beyond the greatest.
pub(super) fn nearest(number: &str, format: Format) -> Option<u64> {
    let (sign, magnitude) = match number.strip_prefix('-') {
        Some(magnitude) => (1, magnitude),
        None => (0, number),
    };
    let (digits, exponent) = scan(magnitude);
    let size = digits.len() as i64 + exponent;
    let bits = if digits.is_empty() || size < -MOST_EXPONENT {
        0
    } else if size > MOST_EXPONENT {
        format.infinity()
    } else if format.width == F64.width && is_short(&digits, exponent) {
        short(&digits, exponent).to_bits()
    } else {
        divide(&digits, exponent, format)
    };
    (bits < format.infinity()).then_some(sign << (format.width - 1) | bits)
}

/// The digits from the first that is not 0, and the power of ten of the last of them.
fn scan(number: &str) -> (Vec<u8>, i64) {
    let (mantissa, written) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    // What i32 cannot hold is far beyond what any digits make up for.
    let huge = if written.starts_with('-') { i64::from(i32::MIN) } else { i64::from(i32::MAX) };
    let mut exponent = written.parse::<i32>().map_or(huge, i64::from);
    let (mut digits, mut in_fraction, mut rest) = (Vec::new(), false, false);
    for char in mantissa.bytes() {
        if char == b'.' {
            in_fraction = true;
            continue;
        }
        let digit = char.wrapping_sub(b'0');
        let is_kept = digits.len() < MOST_DIGITS;
        if is_kept && (digit != 0 || !digits.is_empty()) {
            digits.push(digit);
        }
        rest |= !is_kept && digit != 0;
        exponent += i64::from(!is_kept) - i64::from(in_fraction);
    }
    if rest {
        // Whatever the rest is, it is more than nothing.
        digits.push(1);
        exponent -= 1;
    }
    (digits, exponent)
}

const fn is_short(digits: &[u8], exponent: i64) -> bool {
    digits.len() <= EXACT_DIGITS && exponent.unsigned_abs() <= EXACT_POWER
}

/// What nearly every parameter is: two exact numbers, whose quotient or product rounds once.
fn short(digits: &[u8], exponent: i64) -> f64 {
    let whole = digits.iter().fold(0.0, |whole, digit| whole * 10.0 + f64::from(*digit));
    let power = (0..exponent.unsigned_abs()).fold(1.0, |power, _| power * 10.0);
    if exponent < 0 { whole / power } else { whole * power }
}

/// Digits that are a whole number, times ten to the exponent; infinite beyond the greatest number.
fn divide(digits: &[u8], exponent: i64, format: Format) -> u64 {
    let (mut dividend, mut divisor) = (Whole(Vec::new()), Whole(vec![1]));
    for digit in digits {
        dividend.multiply_add(10, u32::from(*digit));
    }
    let scaled = if exponent < 0 { &mut divisor } else { &mut dividend };
    for _ in 0..exponent.unsigned_abs() {
        scaled.multiply_add(10, 0);
    }

    // The quotient becomes a number from 1 to below 2, times 2 to the exponent.
    let mut exponent = dividend.bits() - divisor.bits();
    let scaled = if exponent < 0 { &mut dividend } else { &mut divisor };
    scaled.shift(exponent.unsigned_abs());
    if dividend.order(&divisor).is_lt() {
        dividend.shift(1);
        exponent -= 1;
    }
    if exponent > format.bias {
        return format.infinity();
    }
    // Below the least normal exponent each bit less is one of the precision.
    let lost = (1 - format.bias - exponent).max(0);
    if lost > format.precision {
        return 0;
    }
    let mut significand = 0;
    for _ in lost..format.precision {
        significand <<= 1;
        if dividend.order(&divisor).is_ge() {
            dividend.subtract(&divisor);
            significand += 1;
        }
        dividend.shift(1);
    }
    // What is left is half a unit where the two are equal.
    significand += match dividend.order(&divisor) {
        Ordering::Less => 0,
        Ordering::Equal => significand & 1,
        Ordering::Greater => 1,
    };
    // The implicit bit, or a carry, adds 1 to the exponent's field.
    let field = if lost > 0 { 0 } else { exponent + format.bias - 1 };
    ((field as u64) << (format.precision - 1)) + significand
}

impl Format {
    const fn infinity(self) -> u64 {
        ((2 * self.bias + 1) as u64) << (self.precision - 1)
    }
}

/// A whole number, the least digit of base 2³² first, without a leading 0.
struct Whole(Vec<u32>);

impl Whole {
    fn bits(&self) -> i64 {
        self.0.last().map_or(0, |first| self.0.len() as i64 * 32 - i64::from(first.leading_zeros()))
    }

    fn order(&self, other: &Self) -> Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }

    fn multiply_add(&mut self, factor: u32, summand: u32) {
        let mut carry = u64::from(summand);
        for digit in &mut self.0 {
            carry += u64::from(*digit) * u64::from(factor);
            *digit = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    /// Multiplies by 2 to the power of `bits`.
    fn shift(&mut self, bits: u64) {
        for _ in 0..bits / 31 {
            self.multiply_add(1 << 31, 0);
        }
        self.multiply_add(1 << (bits % 31), 0);
    }

    /// Subtracts a number that is not greater.
    fn subtract(&mut self, other: &Self) {
        let mut borrow = false;
        let others = other.0.iter().copied().chain(std::iter::repeat(0));
        for (digit, other) in self.0.iter_mut().zip(others) {
            (*digit, borrow) = digit.borrowing_sub(other, borrow);
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds the number against the standard library's reading, in both formats.
    #[track_caller]
    fn check(number: &str) {
        let double = number.parse().ok().filter(|double: &f64| double.is_finite()).map(f64::to_bits);
        assert_eq!(nearest(number, F64), double, "{number} as f64");
        let float = number.parse().ok().filter(|float: &f32| float.is_finite()).map(|float| float.to_bits().into());
        assert_eq!(nearest(number, F32), float, "{number} as f32");
    }

    #[test]
    fn edges() {
        let digits = "123456789".repeat(100);
        for number in [
            "0",
            "-0",
            "0.0",
            "0e5",
            "1",
            "-1",
            "10",
            "0.1",
            "1.1",
            "-2.5e-3",
            "1E+2",
            "00.5",
            "1e22",
            "1e23",
            "9e22",
            "9007199254740993",
            "9007199254740992.5",
            "9007199254740993.0000000000000000000000000000001",
            "1.7976931348623157e308",
            "1.7976931348623158e308",
            "1.7976931348623159e308",
            "1e309",
            "1e999",
            "-1e999",
            "4.9e-324",
            "2.4703282292062327e-324",
            "2.4703282292062328e-324",
            "2.5e-324",
            "1e-400",
            "-1e-999",
            "2.2250738585072011e-308",
            "2.2250738585072014e-308",
            "3.4028235e38",
            "3.4028236e38",
            "1.4e-45",
            "7e-46",
            "1e99999999999999999999",
            "1e-99999999999999999999",
            "-0e99999999999999999999",
            &digits,
            &format!("0.{digits}"),
            &format!("{digits}e-900"),
            &format!("{digits}e-1224"),
            &format!("0.{}1", "0".repeat(310)),
            &format!("1{}e-320", "0".repeat(320)),
            &format!("{}e-1000", "9".repeat(1000)),
        ] {
            check(number);
        }
    }

    #[test]
    fn every_power_of_ten() {
        for exponent in -420..=420 {
            check(&format!("1e{exponent}"));
            check(&format!("17976931348623157e{exponent}"));
        }
    }

    #[test]
    fn random_digits_and_random_bits() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let digits: String = (0..random.usize(1..40)).map(|_| random.digit(10)).collect();
            check(&format!("{digits}e{}", random.i32(-360..320)));
            check(&format!("{}.{digits}", random.u32(..)));
            let most = 10_u64.pow(random.u32(1..17));
            let short = random.u64(..most);
            check(&format!("{short}e{}", random.i32(-30..30)));
            for number in [f64::from_bits(random.u64(..)), f64::from(f32::from_bits(random.u32(..)))] {
                if number.is_finite() {
                    check(&format!("{number:e}"));
                    check(&format!("{number:.17e}"));
                }
            }
        }
    }

    #[test]
    fn halfway_between_two_numbers_and_next_to_it() {
        let mut random = fastrand::Rng::with_seed(2);
        for round in 0..3_000 {
            // Every fourth is subnormal, where the last bit is worth most digits.
            let mask = if round % 4 == 0 { (1 << 52) - 1 } else { (1 << 62) - 1 };
            let bits = random.u64(..) & mask;
            let half = halfway(bits);
            check(&half);
            check(&format!("{half}{}1", "0".repeat(random.usize(0..60))));
            let below = half.trim_end_matches('0');
            let (rest, last) = below.split_at(below.len() - 1);
            check(&format!("{rest}{}9", char::from(last.as_bytes()[0] - 1)));
        }
    }

    /// All digits of the number halfway between that of these bits and the next, at most 2.
    fn halfway(bits: u64) -> String {
        let number = f64::from_bits(bits);
        let next = f64::from_bits(bits + 1);
        // Written to 1100 places each of the two is exact, and so is half their sum.
        let digits =
            |number: f64| -> Vec<u8> { format!("{number:.1100}").bytes().filter(|byte| *byte != b'.').collect() };
        let mut carry = 0;
        let mut sum: Vec<u8> = Vec::new();
        for (one, other) in digits(number).iter().zip(digits(next)).rev() {
            let digit = one - b'0' + other - b'0' + carry;
            sum.push(digit % 10);
            carry = digit / 10;
        }
        sum.push(carry);
        let mut rest = 0;
        let mut half: Vec<u8> = Vec::new();
        for digit in sum.iter().rev() {
            let two = rest * 10 + digit;
            half.push(b'0' + two / 2);
            rest = two % 2;
        }
        half.push(b'0' + rest * 5);
        let text = String::from_utf8(half).unwrap();
        let (whole, fraction) = text.split_at(text.len() - 1101);
        format!("{whole}.{fraction}")
    }
}
