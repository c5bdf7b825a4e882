//! Stages that change each byte by itself: identity, increment, decrement, xor, rot13, upper,
//! lower, tr.
//!
//! They keep length and place, run in place where they may, and neighbours are one: two passes over
//! the bytes become one.

use crate::arguments::{Arguments, parsed};
use crate::flow::{Input, Output, filled};
use crate::language::{Call, NetworkError, Word};
use crate::stage::{Keeps, Progress, Running, Shape, Stage, StageError};
use weft_block::{Buffer, Slice};

/// Change to each byte.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum ByteMap {
    /// It stays what it is.
    Same,
    /// This is added, modulo 256.
    Add(u8),
    /// It is combined with this by exclusive or.
    Xor(u8),
    /// It is looked up in the table.
    Table(Box<[u8; 256]>),
}

impl std::fmt::Debug for ByteMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ByteMap::Same => f.write_str("Same"),
            ByteMap::Add(by) => write!(f, "Add({by})"),
            ByteMap::Xor(with) => write!(f, "Xor({with})"),
            ByteMap::Table(_) => f.write_str("Table"),
        }
    }
}

impl ByteMap {
    fn of(&self, byte: u8) -> u8 {
        match self {
            ByteMap::Same => byte,
            ByteMap::Add(by) => byte.wrapping_add(*by),
            ByteMap::Xor(with) => byte ^ with,
            ByteMap::Table(table) => table[usize::from(byte)],
        }
    }

    fn table(of: impl Fn(u8) -> u8) -> ByteMap {
        let mut table = Box::new([0; 256]);
        (0..=255).zip(table.iter_mut()).for_each(|(byte, to)| *to = of(byte));
        ByteMap::Table(table)
    }

    /// This, and then `next`.
    pub(crate) fn then(&self, next: &ByteMap) -> ByteMap {
        match (self, next) {
            (ByteMap::Same, other) | (other, ByteMap::Same) => other.clone(),
            (ByteMap::Add(one), ByteMap::Add(other)) => ByteMap::Add(one.wrapping_add(*other)),
            (ByteMap::Xor(one), ByteMap::Xor(other)) => ByteMap::Xor(one ^ other),
            _ => ByteMap::table(|byte| next.of(self.of(byte))),
        }
    }

    /// Changes `bytes` where they lie.
    fn edit(&self, bytes: &mut [u8]) {
        // A loop each, so that the compiler makes one of vectors of it.
        match self {
            ByteMap::Same => {}
            ByteMap::Add(by) => bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(*by)),
            ByteMap::Xor(with) => bytes.iter_mut().for_each(|byte| *byte ^= with),
            ByteMap::Table(table) => bytes.iter_mut().for_each(|byte| *byte = table[usize::from(*byte)]),
        }
    }

    /// Writes what becomes of `bytes` over `to`, which is as long.
    fn copy(&self, bytes: &[u8], to: &mut [u8]) {
        let pairs = to.iter_mut().zip(bytes);
        match self {
            ByteMap::Same => to.copy_from_slice(bytes),
            ByteMap::Add(by) => pairs.for_each(|(to, byte)| *to = byte.wrapping_add(*by)),
            ByteMap::Xor(with) => pairs.for_each(|(to, byte)| *to = byte ^ with),
            ByteMap::Table(table) => pairs.for_each(|(to, byte)| *to = table[usize::from(*byte)]),
        }
    }

    /// Maps `slice`: in place if nobody else can reach it, else in one pass into new memory.
    fn apply(&self, mut slice: Slice) -> Slice {
        if *self == ByteMap::Same {
            return slice;
        }
        if let Some(bytes) = slice.alone() {
            self.edit(bytes);
            return slice;
        }
        let mut buffer = Buffer::any(slice.len());
        self.copy(&slice, &mut buffer);
        buffer.freeze().whole()
    }
}

/// A stage that is a map.
pub(crate) fn stage(map: ByteMap, inverse: Option<String>) -> Stage {
    let gives = if map == ByteMap::Same { |input| input } else { |_| Shape::Unknown };
    let started = map.clone();
    let keeps = Keeps { length: true, place: true };
    Stage { gives, keeps, inverse, byte_map: Some(map), ..Stage::new(move || Mapping(started.clone())) }
}

struct Mapping(ByteMap);

impl Running for Mapping {
    fn advance(&mut self, input: &mut Input, output: &mut Output) -> Result<Progress, StageError> {
        while let Some(slice) = input.take() {
            output.push(self.0.apply(slice));
        }
        Ok(if input.has_ended() { Progress::Ended } else { Progress::NeedsInput })
    }
}

pub(crate) fn identity(call: &Call) -> Result<Stage, NetworkError> {
    Arguments::read(call, "", "")?.end()?;
    Ok(stage(ByteMap::Same, Some("identity".into())))
}

/// A byte as decimal digits.
fn byte(word: &Word) -> Result<u8, NetworkError> {
    parsed(word, "a number from 0 to 255")
}

fn amount(call: &Call) -> Result<u8, NetworkError> {
    let mut arguments = Arguments::read(call, "", "")?;
    let amount = arguments.optional().map(byte).transpose()?.unwrap_or(1);
    arguments.end()?;
    Ok(amount)
}

pub(crate) fn increment(call: &Call) -> Result<Stage, NetworkError> {
    let amount = amount(call)?;
    Ok(stage(ByteMap::Add(amount), Some(format!("decrement {amount}"))))
}

pub(crate) fn decrement(call: &Call) -> Result<Stage, NetworkError> {
    let amount = amount(call)?;
    Ok(stage(ByteMap::Add(amount.wrapping_neg()), Some(format!("increment {amount}"))))
}

pub(crate) fn xor(call: &Call) -> Result<Stage, NetworkError> {
    let mut arguments = Arguments::read(call, "", "")?;
    let with = byte(arguments.operand("a byte, as a number")?)?;
    arguments.end()?;
    Ok(stage(ByteMap::Xor(with), Some(format!("xor {with}"))))
}

pub(crate) fn rot13(call: &Call) -> Result<Stage, NetworkError> {
    Arguments::read(call, "", "")?.end()?;
    let turn = |byte: u8, from: u8| (byte - from + 13) % 26 + from;
    let map = ByteMap::table(|byte| match byte {
        b'a'..=b'z' => turn(byte, b'a'),
        b'A'..=b'Z' => turn(byte, b'A'),
        byte => byte,
    });
    Ok(stage(map, Some("rot13".into())))
}

pub(crate) fn upper(call: &Call) -> Result<Stage, NetworkError> {
    Arguments::read(call, "", "")?.end()?;
    Ok(stage(ByteMap::table(|byte| byte.to_ascii_uppercase()), None))
}

pub(crate) fn lower(call: &Call) -> Result<Stage, NetworkError> {
    Arguments::read(call, "", "")?.end()?;
    Ok(stage(ByteMap::table(|byte| byte.to_ascii_lowercase()), None))
}

/// The bytes that an operand of tr stands for.
fn set(word: &Word, is_class: fn(&[u8]) -> bool) -> Result<Vec<u8>, NetworkError> {
    let wrong = |message: &str| NetworkError::new(format!("'{}': {message}", word.text), word.at);
    let mut set = Vec::new();
    let mut rest = word.text.as_bytes();
    while !rest.is_empty() {
        if let Some((name, after)) = bracketed(rest, b':') {
            let class = class(name)
                .filter(|_| is_class(name))
                .ok_or_else(|| wrong("there is no such class of characters here"))?;
            set.extend((0..=u8::MAX).filter(class));
            rest = after;
            continue;
        }
        if bracketed(rest, b'=').is_some() {
            return Err(wrong("[=…=] is not known here"));
        }
        let is_open = rest[0] == b'[';
        let (first, after) = character(rest).ok_or_else(|| wrong("nothing follows the backslash"))?;
        rest = after;
        // A dash between two bytes is a range.
        if let Some((last, after)) = rest.strip_prefix(b"-").and_then(character) {
            if first > last {
                return Err(wrong("a range goes upwards"));
            }
            set.extend(first..=last);
            rest = after;
        } else if is_open && rest.get(1) == Some(&b'*') && rest.contains(&b']') {
            return Err(wrong("[c*n] is not known here"));
        } else {
            set.push(first);
        }
    }
    if set.is_empty() { Err(wrong("there are no bytes")) } else { Ok(set) }
}

/// Splits `text` into the part between `[` and `]`, with this mark on both sides, and the rest.
fn bracketed(text: &[u8], mark: u8) -> Option<(&[u8], &[u8])> {
    let inner = text.strip_prefix(&[b'[', mark])?;
    let end = inner.windows(2).position(|pair| pair == [mark, b']'])?;
    Some((&inner[..end], &inner[end + 2..]))
}

/// The first byte that `text` means, and what follows. None if it is a backslash, and nothing
/// follows that.
fn character(text: &[u8]) -> Option<(u8, &[u8])> {
    let (first, rest) = text.split_first()?;
    if *first != b'\\' {
        return Some((*first, rest));
    }
    let (escaped, after) = rest.split_first()?;
    let digits = rest.iter().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
    let value = rest[..digits].iter().fold(0u16, |value, digit| value * 8 + u16::from(digit - b'0'));
    match (u8::try_from(value), escaped) {
        (Ok(byte), _) if digits > 0 => Some((byte, &rest[digits..])),
        // As tr(1): of \400 and more the first two digits.
        _ if digits > 0 => Some(((value / 8) as u8, &rest[digits - 1..])),
        (_, b'a') => Some((7, after)),
        (_, b'b') => Some((8, after)),
        (_, b't') => Some((b'\t', after)),
        (_, b'n') => Some((b'\n', after)),
        (_, b'v') => Some((11, after)),
        (_, b'f') => Some((12, after)),
        (_, b'r') => Some((b'\r', after)),
        _ => Some((*escaped, after)),
    }
}

/// Returns the test for the class called `name` (POSIX, "LC_CTYPE" of the POSIX locale).
fn class(name: &[u8]) -> Option<fn(&u8) -> bool> {
    Some(match name {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |byte| matches!(byte, b' '..=b'~'),
        b"punct" => u8::is_ascii_punctuation,
        b"space" => |byte| matches!(byte, b' ' | b'\t'..=b'\r'),
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return None,
    })
}

pub(crate) fn tr(call: &Call) -> Result<Stage, NetworkError> {
    let mut arguments = Arguments::read(call, "d", "")?;
    let from = set(arguments.operand("the bytes to replace")?, |_| true)?;
    if arguments.has('d') {
        arguments.end()?;
        let mut goes = [false; 256];
        from.iter().for_each(|byte| goes[usize::from(*byte)] = true);
        return Ok(Stage::new(move || Deleting(Box::new(goes))));
    }
    // Of others nobody could tell which of them stands for which.
    let to = set(arguments.operand("what to replace them with")?, |name| matches!(name, b"lower" | b"upper"))?;
    arguments.end()?;
    let mut table: [u8; 256] = std::array::from_fn(|byte| u8::try_from(byte).expect("a byte"));
    let last = to.len() - 1;
    from.iter().enumerate().for_each(|(at, byte)| table[usize::from(*byte)] = to[at.min(last)]);
    let inverse = undoes(&table);
    Ok(stage(ByteMap::Table(Box::new(table)), inverse))
}

/// The network that undoes a table; none if two bytes become the same.
fn undoes(table: &[u8; 256]) -> Option<String> {
    let mut is_there = [false; 256];
    table.iter().for_each(|byte| is_there[usize::from(*byte)] = true);
    if is_there.contains(&false) {
        return None;
    }
    let changed = || (0..=255u8).zip(table).filter(|(from, to)| from != *to);
    let told = |bytes: &mut dyn Iterator<Item = u8>| bytes.map(|byte| format!("\\{byte:03o}")).collect::<String>();
    let (from, to) = (told(&mut changed().map(|(from, _)| from)), told(&mut changed().map(|(_, to)| *to)));
    Some(if from.is_empty() { "identity".into() } else { format!("tr '{to}' '{from}'") })
}

/// `tr -d`: which bytes go.
struct Deleting(Box<[bool; 256]>);

impl Running for Deleting {
    fn advance(&mut self, input: &mut Input, output: &mut Output) -> Result<Progress, StageError> {
        while let Some(slice) = input.take() {
            let mut kept = Buffer::any(slice.len());
            let mut len = 0;
            for byte in slice.iter() {
                kept[len] = *byte;
                len += usize::from(!self.0[usize::from(*byte)]);
            }
            output.push(filled(kept, len));
        }
        Ok(if input.has_ended() { Progress::Ended } else { Progress::NeedsInput })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Network, NoFiles};
    use proptest::prelude::*;
    use weft_block::Block;

    fn any_map() -> impl Strategy<Value = ByteMap> {
        prop_oneof![
            Just(ByteMap::Same),
            any::<u8>().prop_map(ByteMap::Add),
            any::<u8>().prop_map(ByteMap::Xor),
            any::<u8>().prop_map(|by| ByteMap::table(|byte| byte.wrapping_mul(by))),
        ]
    }

    #[test]
    fn tr_is_undone_if_it_loses_nothing() {
        let all = (0..=255).collect::<Vec<u8>>();
        let applied = |network: &Network, bytes: &[u8]| {
            network.apply(bytes.to_vec().into(), &mut NoFiles).expect("applied").to_vec()
        };
        for text in ["tr 0-9 1-90", "tr a-zA-Z n-za-mN-ZA-M", r"tr '\000x\-' 'x\-\000'", "tr a a"] {
            let Ok(network) = Network::parse(text) else { panic!("{text}") };
            let inverse = network.inverse().expect(text);
            assert_eq!(applied(&inverse, &applied(&network, &all)), all, "{text}");
        }
        for text in ["tr a-z A-Z", "tr ab a", "tr -d a"] {
            assert!(Network::parse(text).expect(text).inverse().is_none(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn maps_made_one_do_what_they_do_one_after_the_other(one in any_map(), other in any_map(), bytes: Vec<u8>) {
            let fused = one.then(&other).apply(Slice::from(bytes.clone()));
            prop_assert_eq!(&*fused, &*other.apply(one.apply(Slice::from(bytes.clone()))));
            let expected: Vec<u8> = bytes.iter().map(|byte| other.of(one.of(*byte))).collect();
            prop_assert_eq!(&*fused, &*expected);
        }

        #[test]
        fn what_somebody_else_has_is_never_edited(map in any_map(), bytes in proptest::collection::vec(any::<u8>(), 2..99)) {
            let block = Block::new(bytes.clone());
            let half = block.slice(0..bytes.len() / 2);
            let changed = map.apply(half);
            prop_assert_eq!(&*block, &*bytes);
            let expected: Vec<u8> = bytes[..bytes.len() / 2].iter().map(|byte| map.of(*byte)).collect();
            prop_assert_eq!(&*changed, &*expected);
            let alone = block.whole();
            drop(block);
            let address = alone.as_ptr();
            prop_assert_eq!(map.apply(alone).as_ptr(), address, "edited in place");
        }
    }
}
