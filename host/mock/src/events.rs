//! KV events in vLLM's wire format: messages of three frames, the topic, a sequence number (8 bytes, big-endian, from 0
//! on), and a batch in msgpack: `[timestamp, [event, ...], data_parallel_rank]`, each event an array that begins with its
//! name.
//!
//! Who missed messages asks for them by the number of the first one: an empty frame and the number. The answer is a message
//! for each one that is kept still, an empty frame, its number and its batch, and a last one with the number -1.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::Serialize;
use tokio::sync::mpsc::UnboundedReceiver;
use zeromq::{PubSocket, RouterSocket, SocketRecv, SocketSend, ZmqMessage};

/// The messages of a rank that can be had again.
const KEPT: usize = 10_000;

/// The latest messages of a rank: number and batch.
pub(crate) type Kept = Arc<Mutex<VecDeque<(u64, Bytes)>>>;

/// What happened to blocks of a rank's cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KvEvent {
    BlockStored { hashes: Vec<u64>, parent: Option<u64>, tokens: Vec<u32> },
    BlockRemoved { hashes: Vec<u64> },
    AllBlocksCleared,
}

/// What the events of a rank have in common.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) topic: Bytes,
    pub(crate) rank: u32,
    pub(crate) block_size: u32,
}

/// Name, block hashes, parent, token ids, block size, LoRA id, medium.
#[derive(Serialize)]
struct BlockStored<'a>(&'static str, &'a [u64], Option<u64>, &'a [u32], u32, Option<u32>, &'static str);

/// Name, block hashes, medium.
#[derive(Serialize)]
struct BlockRemoved<'a>(&'static str, &'a [u64], &'static str);

#[derive(Serialize)]
#[serde(untagged)]
enum WireEvent<'a> {
    Stored(BlockStored<'a>),
    Removed(BlockRemoved<'a>),
    Cleared([&'static str; 1]),
}

const MEDIUM: &str = "GPU";

fn encode(events: &[KvEvent], source: &Source, timestamp: f64) -> Result<Vec<u8>, rmp_serde::encode::Error> {
    let wire = |event| match event {
        &KvEvent::BlockStored { ref hashes, parent, ref tokens } => {
            WireEvent::Stored(BlockStored("BlockStored", hashes, parent, tokens, source.block_size, None, MEDIUM))
        }
        KvEvent::BlockRemoved { hashes } => WireEvent::Removed(BlockRemoved("BlockRemoved", hashes, MEDIUM)),
        KvEvent::AllBlocksCleared => WireEvent::Cleared(["AllBlocksCleared"]),
    };
    rmp_serde::to_vec(&(timestamp, events.iter().map(wire).collect::<Vec<_>>(), source.rank))
}

/// Publishes batches until there are no more.
pub(crate) async fn publish(
    mut socket: PubSocket,
    source: Source,
    kept: Kept,
    mut batches: UnboundedReceiver<Vec<KvEvent>>,
) {
    let mut sequence = 0_u64;
    while let Some(events) = batches.recv().await {
        let timestamp = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let Ok(payload) = encode(&events, &source, timestamp) else { continue };
        let mut message = ZmqMessage::from(source.topic.clone());
        message.push_back(Bytes::copy_from_slice(&sequence.to_be_bytes()));
        let payload = Bytes::from(payload);
        message.push_back(payload.clone());
        {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push_back((sequence, payload));
            if kept.len() > KEPT {
                kept.pop_front();
            }
        }
        sequence += 1;
        if let Err(error) = socket.send(message).await {
            tracing::debug!(%error, "a batch of KV events is not sent");
        }
    }
}

/// Sends messages again to who asks for them.
pub(crate) async fn replay(mut socket: RouterSocket, kept: Kept) {
    while let Ok(asked) = socket.recv().await {
        // Whose answer it is, an empty frame, and the first number.
        let (Some(peer), Some(first)) = (asked.get(0), asked.get(2)) else { continue };
        let Ok(first) = <[u8; 8]>::try_from(first.as_ref()).map(u64::from_be_bytes) else { continue };
        let wanted: Vec<_> = {
            let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.iter().filter(|(number, _)| *number >= first).cloned().collect()
        };
        for (number, payload) in wanted.into_iter().chain([(u64::MAX, Bytes::new())]) {
            let mut message = ZmqMessage::from(peer.clone());
            message.push_back(Bytes::new());
            message.push_back(Bytes::copy_from_slice(&number.to_be_bytes()));
            message.push_back(payload);
            if let Err(error) = socket.send(message).await {
                tracing::debug!(%error, "a batch of KV events is not sent again");
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What msgspec 0.23 encodes for vLLM's structures (`array_like`, `tag`, `omit_defaults`) with these values.
    #[test]
    fn a_batch_is_what_vllm_sends() {
        let events = [
            KvEvent::BlockStored { hashes: vec![0xFFFF_FFFF_FFFF_FFFF, 2], parent: Some(1), tokens: vec![5, 70_000] },
            KvEvent::BlockRemoved { hashes: vec![2] },
            KvEvent::AllBlocksCleared,
        ];
        let source = Source { topic: Bytes::new(), rank: 1, block_size: 1 };
        let recorded = "93cb3ff80000000000009397ab426c6f636b53746f72656492cfffffffffffffffff02019205ce0001117001c0a347505593ac426c6f636b52656d6f7665649102a347505591b0416c6c426c6f636b73436c656172656401";
        let hex: String = encode(&events, &source, 1.5).unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, recorded);
    }
}
