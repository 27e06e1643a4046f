//! The prompt of a body: its tokens, and the hashes of its blocks.

use std::hash::{BuildHasher, Hasher, RandomState};

use dynamo_kv_router::protocols::{
    BlockExtraInfo, BlockHashOptions, LocalBlockHash, compute_block_hash_for_seq, compute_seq_hash_for_block,
};

use super::error::SelectError;
use super::wire::PromptBody;

/// What each block of a prompt has besides its tokens; none where nothing has.
type Infos<'a> = Option<&'a [Option<BlockExtraInfo>]>;

/// How a partition hashes prompts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hashing {
    /// Tokens a block.
    pub(super) block_size: u32,
    /// Whether each block's hash reaches one token into the next, as the workers of the partition say.
    pub(super) is_eagle: bool,
    /// Whether equal blocks are one block; if not, each block of a request counts by itself.
    pub(super) assume_reuse: bool,
}

/// A prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hashed {
    pub(super) tokens: u64,
    /// The chain by which the blocks of active requests are counted.
    pub(super) tracked: Vec<u64>,
    /// The chain by which prefixes are looked up; none where the body tells the other alone.
    pub(super) chain: Option<Vec<u64>>,
}

impl PromptBody {
    /// What a selection needs: tokens, or all three of `block_hashes`, `sequence_hashes` and `isl_tokens`.
    pub(super) fn for_selection(&self, hashing: Hashing) -> Result<Hashed, SelectError> {
        if self.tokens().is_none() && self.block_hashes.is_none() {
            return Err(SelectError::missing("block_hashes"));
        }
        self.for_reservation(hashing)
    }

    /// What a booking needs: as a selection, but for `block_hashes`.
    pub(super) fn for_reservation(&self, hashing: Hashing) -> Result<Hashed, SelectError> {
        if let Some((tokens, infos)) = self.tokens() {
            return Ok(self.hash(tokens, infos, hashing));
        }
        let tracked = self.sequence_hashes.as_ref().ok_or_else(|| SelectError::missing("sequence_hashes"))?;
        let tokens = self.isl_tokens.ok_or_else(|| SelectError::missing("isl_tokens"))?;
        let chain = self.block_hashes.as_ref().map(|blocks| chain_of(blocks, tracked.len(), tokens)).transpose()?;
        Ok(Hashed { tokens, tracked: tracked.iter().map(|hash| hash.cast_unsigned()).collect(), chain })
    }

    /// The tokens to hash, and what their blocks have besides.
    fn tokens(&self) -> Option<(&[u32], Infos<'_>)> {
        let multimodal = self.mm_routing_info.as_ref().filter(|info| !info.routing_token_ids.is_empty());
        match multimodal {
            Some(info) => Some((&info.routing_token_ids, Some(&info.block_mm_infos))),
            None => Some((self.token_ids.as_deref()?, self.block_mm_infos.as_deref())),
        }
    }

    fn hash(&self, tokens: &[u32], infos: Infos<'_>, hashing: Hashing) -> Hashed {
        let options = BlockHashOptions {
            block_mm_infos: infos,
            lora_name: self.lora_name.as_deref(),
            cache_namespace: self.cache_salt.as_deref(),
            is_eagle: Some(self.is_eagle.unwrap_or(hashing.is_eagle)),
        };
        let chain = compute_seq_hash_for_block(&compute_block_hash_for_seq(tokens, hashing.block_size, options));
        let tracked = if hashing.assume_reuse { chain.clone() } else { unlike_any_other(chain.len()) };
        Hashed { tokens: tokens.len() as u64, tracked, chain: Some(chain) }
    }
}

fn chain_of(blocks: &[i64], tracked: usize, tokens: u64) -> Result<Vec<u64>, SelectError> {
    if tokens == 0 {
        return Err(SelectError::BadRequest("isl_tokens is 0; give the number of prompt tokens".to_owned()));
    }
    if blocks.len() != tracked {
        return Err(SelectError::BadRequest(format!(
            "block_hashes has {} entries and sequence_hashes {tracked}; give one of each for every block",
            blocks.len()
        )));
    }
    let local: Vec<_> = blocks.iter().map(|hash| LocalBlockHash(hash.cast_unsigned())).collect();
    Ok(compute_seq_hash_for_block(&local))
}

/// Hashes that no other block has.
fn unlike_any_other(blocks: usize) -> Vec<u64> {
    std::iter::repeat_with(|| RandomState::new().build_hasher().finish()).take(blocks).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may end by a panic")]

    use serde_json::{Value, json};

    use super::*;

    const HASHING: Hashing = Hashing { block_size: 16, is_eagle: false, assume_reuse: true };

    fn body(value: Value) -> PromptBody {
        serde_json::from_value(value).unwrap()
    }

    fn tokens(count: u32) -> Vec<u32> {
        (0..count).collect()
    }

    #[test]
    fn tokens_have_the_hashes_that_dynamos_service_answers() {
        let hashed = body(json!({"token_ids": tokens(40)})).for_selection(HASHING).unwrap();
        let answered = [-3_136_036_677_815_684_470_i64, -4_677_586_368_451_018_952].map(i64::cast_unsigned);
        assert_eq!(hashed, Hashed { tokens: 40, tracked: answered.to_vec(), chain: Some(answered.to_vec()) });
    }

    #[test]
    fn another_adapter_or_salt_is_another_prompt() {
        let hash = |extra: Value| {
            let mut value = json!({"token_ids": tokens(16)});
            value.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            body(value).for_selection(HASHING).unwrap().tracked
        };
        let [plain, lora, salt] = [json!({}), json!({"lora_name": "a"}), json!({"cache_salt": "a"})].map(hash);
        assert!(plain != lora && plain != salt && lora != salt);
    }

    #[test]
    fn without_reuse_each_block_counts_by_itself_and_prefixes_are_found_as_before() {
        let (body, alone) = (body(json!({"token_ids": tokens(32)})), Hashing { assume_reuse: false, ..HASHING });
        let [one, other] = [(), ()].map(|()| body.for_selection(alone).unwrap());
        assert_eq!(one.chain, other.chain);
        assert_eq!((one.tracked.len(), other.tracked.len()), (2, 2));
        assert_ne!(one.tracked, other.tracked);
    }

    #[test]
    fn hashes_do_without_tokens() {
        let hashed =
            body(json!({"block_hashes": [1, 2], "sequence_hashes": [7, -1], "isl_tokens": 40})).for_selection(HASHING);
        let hashed = hashed.unwrap();
        assert_eq!((hashed.tokens, hashed.tracked), (40, vec![7, u64::MAX]));
        assert_eq!(hashed.chain.map(|chain| chain.len()), Some(2));
        let booked = body(json!({"sequence_hashes": [7], "isl_tokens": 40})).for_reservation(HASHING).unwrap();
        assert_eq!(booked.chain, None);
    }
}
