//! Length-prefixed frames: bytes in, frames out, no socket.
//!
//! A frame is a `u32` length (big endian) and that many bytes. Faults answered:
//!
//! - *A length that lies.* The length is compared with the cap before anything is done with it, so
//!   `0xFFFF_FFFF` closes the connection. Even an allowed length allocates nothing by itself: the
//!   buffer grows with the bytes that have arrived.
//! - *Strangers.* Before the peer has proved that it knows the secret the cap is
//!   [`HANDSHAKE_FRAME_BYTES_MAX`], so a connection without the secret costs about a kilobyte.
//! - *A stream cut inside a frame.* [`Decoder::is_clean`] tells an end between two frames from one
//!   inside a frame; only the first can be an orderly end.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Greatest frame before the other side has proved that it knows the secret, in bytes.
pub(crate) const HANDSHAKE_FRAME_BYTES_MAX: usize = 1024;

/// Greatest frame of an authenticated peer, in bytes. Entries are batches that the desk bounds far
/// below it, and a request of many entries is divided (see `wire`).
pub(crate) const FRAME_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Free space that a read asks for, in bytes.
const READ_BYTES: usize = 16 * 1024;

/// Bytes of the length before each frame.
const LENGTH_BYTES: usize = 4;

/// The other side announced a frame above the cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {length} bytes was announced, at most {max} are allowed")]
pub struct FrameTooLong {
    /// What was announced, in bytes.
    pub length: usize,
    /// The cap, in bytes.
    pub max: usize,
}

/// Takes frames out of a stream of bytes.
#[derive(Debug)]
pub(crate) struct Decoder {
    buffer: BytesMut,
    frame_bytes_max: usize,
}

impl Decoder {
    /// A decoder that refuses frames above `frame_bytes_max`.
    pub(crate) fn new(frame_bytes_max: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            frame_bytes_max,
        }
    }

    /// Changes the cap, for the frames after those already taken.
    pub(crate) fn set_frame_bytes_max(&mut self, bytes: usize) {
        self.frame_bytes_max = bytes;
    }

    /// The next whole frame, or `None` until more bytes have arrived.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, FrameTooLong> {
        let Some(prefix) = self.buffer.first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes(*prefix)).unwrap_or(usize::MAX);
        if length > self.frame_bytes_max {
            return Err(FrameTooLong {
                length,
                max: self.frame_bytes_max,
            });
        }
        if self.buffer.len() - LENGTH_BYTES < length {
            return Ok(None);
        }
        self.buffer.advance(LENGTH_BYTES);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    /// Where the next read goes. It never has more free space than one read asks for, plus what
    /// doubling a buffer of received bytes gives.
    pub(crate) fn space(&mut self) -> &mut BytesMut {
        let spare = self.buffer.capacity() - self.buffer.len();
        if spare < READ_BYTES / 4 {
            self.buffer
                .reserve(READ_BYTES.min(self.frame_bytes_max + LENGTH_BYTES));
        }
        &mut self.buffer
    }

    /// True if nothing of a next frame has arrived.
    pub(crate) fn is_clean(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Bytes that the buffer holds room for.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.capacity()
    }
}

/// Appends one frame to `out`; `write` puts the content there. The length is filled in afterwards,
/// so that the content is encoded once and copied nowhere.
pub(crate) fn put_frame(out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_u32(0);
    write(out);
    let length = out.len() - start - LENGTH_BYTES;
    let length = u32::try_from(length).expect("callers bound what they encode by FRAME_BYTES_MAX");
    out[start..start + LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
}
