//! Host bytes to the device, through page-locked memory: several threads read while the copies before are under way.

use std::{
    collections::VecDeque,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use crate::{
    driver::{DeviceSlice, Event, PinnedBuffer, Stream},
    error::CudaError,
};

/// Bytes of a staging buffer: long enough that a copy's fixed cost is nothing beside it.
const PIECE: usize = 8 << 20;
/// Staging buffers a reader: one it fills, one that is on its way.
const BUFFERS_A_READER: usize = 2;
/// More readers than this outrun any bus.
const MOST_READERS: usize = 8;

/// Bytes and where they go; both of one length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Upload<'a> {
    /// From mapped files: reading them is what takes time.
    pub(crate) from: &'a [u8],
    /// Where to.
    pub(crate) to: DeviceSlice<'a, u8>,
}

/// A run of one upload's bytes.
#[derive(Clone, Copy)]
struct Piece<'a> {
    from: &'a [u8],
    to: DeviceSlice<'a, u8>,
}

/// Copies everything and waits for it. `progress` is called with the bytes on their way so far; an error of its own ends
/// the copying.
pub(crate) fn upload(
    stream: &Stream,
    uploads: &[Upload<'_>],
    progress: &mut dyn FnMut(u64) -> Result<(), CudaError>,
) -> Result<(), CudaError> {
    let mut pieces = vec![];
    for Upload { from, to } in uploads {
        crate::launch::check::len("upload", "bytes", from.len(), to.len())?;
        let runs = from.chunks(PIECE).enumerate();
        pieces.extend(runs.map(|(i, from)| Piece { from, to: to.part(i * PIECE, from.len()) }));
    }
    if pieces.is_empty() {
        return Ok(());
    }
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let readers = threads.min(MOST_READERS).min(pieces.len());
    let (give, free) = mpsc::channel();
    for _ in 0..readers * BUFFERS_A_READER {
        // Cannot fail: the receiver is right here.
        let _ = give.send(PinnedBuffer::<u8>::new(stream.context(), "staging of weights", PIECE)?);
    }
    let (free, next) = (Mutex::new(free), AtomicUsize::new(0));
    thread::scope(|scope| {
        // Moved here: an early return must wake whoever waits for a buffer.
        let give = give;
        let (filled, arriving) = mpsc::sync_channel(readers * BUFFERS_A_READER);
        for _ in 0..readers {
            let (filled, free, next, pieces) = (filled.clone(), &free, &next, &pieces);
            scope.spawn(move || {
                loop {
                    // A closed channel on either side: the copying ended early.
                    let Ok(mut buffer) = free.lock().unwrap_or_else(|e| e.into_inner()).recv() else { return };
                    let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
                    buffer[..piece.from.len()].copy_from_slice(piece.from);
                    if filled.send((*piece, buffer)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(filled);
        let mut flight = Flight { stream, queued: VecDeque::new() };
        let mut done = 0;
        for (piece, buffer) in &arriving {
            flight.queue(piece, buffer)?;
            done += piece.from.len() as u64;
            progress(done)?;
            // A send fails only if no reader is left to take the buffer: all pieces are read then.
            flight.settle(readers, |buffer| drop(give.send(buffer)))?;
        }
        flight.settle(0, drop)
    })
}

/// Copies under way, and the buffers that they read.
struct Flight<'a> {
    stream: &'a Stream,
    queued: VecDeque<(PinnedBuffer<u8>, Event)>,
}

impl Flight<'_> {
    fn queue(&mut self, piece: Piece<'_>, buffer: PinnedBuffer<u8>) -> Result<(), CudaError> {
        let event = Event::new(self.stream.context())?;
        // SAFETY: the buffer is held here until the event has happened, or the stream is done with it (`drop`).
        let queued = unsafe { self.stream.upload_pinned(&buffer, piece.to) }.and_then(|()| event.record(self.stream));
        self.queued.push_back((buffer, event));
        queued
    }

    /// Waits until at most `most` copies are under way, and gives the buffers of the others to `free`.
    fn settle(&mut self, most: usize, mut free: impl FnMut(PinnedBuffer<u8>)) -> Result<(), CudaError> {
        while self.queued.len() > most
            && let Some((_, event)) = self.queued.front()
        {
            event.wait()?;
            self.queued.pop_front().into_iter().for_each(|(buffer, _)| free(buffer));
        }
        Ok(())
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if !self.queued.is_empty() {
            // After an error: the copies end before their buffers go. A lost context copies no more.
            let _ = self.stream.synchronize();
        }
    }
}
