//! The nonsense that the engine answers with. Each token is four bytes of text, and its id is these bytes, as a router's
//! estimate of four bytes a token has it.

/// Tokens, each a space and three letters.
const WORDS: [&[u8; 4]; 32] = [
    b" the", b" red", b" fox", b" ran", b" for", b" its", b" own", b" sun", b" and", b" sky", b" was", b" big",
    b" but", b" not", b" all", b" day", b" saw", b" two", b" old", b" men", b" who", b" had", b" one", b" map",
    b" yet", b" the", b" sea", b" lay", b" far", b" off", b" new", b" end",
];

/// Token number `index` of the answer to a prompt with the hash `seed`.
pub(crate) fn token(seed: u64, index: u32) -> u32 {
    let mixed = (seed ^ u64::from(index).wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    let word = WORDS.get((mixed >> 59) as usize).copied().unwrap_or(b" end");
    u32::from_le_bytes(*word)
}

/// Appends a token's text.
pub(crate) fn push(text: &mut String, token: u32) {
    text.extend(token.to_le_bytes().map(char::from));
}
