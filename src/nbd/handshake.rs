//! The fixed newstyle handshake: one dialogue, from the first magic to the transmission phase.

use std::io::{self, Read, Write};

use super::export::Export;
use super::options::{InfoRequest, MetaRequest, Replies, meta_context};
use super::wire::{
    BASE_ALLOCATION_ID, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, OPTION_MAGIC, SERVER_MAGIC, option,
    option_reply,
};
use crate::limits;

/// What client and server agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Reads are answered by structured replies.
    pub structured_replies: bool,
    /// BLOCK_STATUS tells of `base:allocation`.
    pub allocation: bool,
}

/// How a handshake that broke no connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Transmission begins.
    Transmission(Terms),
    /// The client, or the protocol's rules, ended it.
    Ended,
}

/// What the next step is, once an option is answered.
enum Next {
    Option,
    End(Outcome),
}

/// Speaks the handshake over `stream`, whose reads and writes end at the deadline. Nothing past
/// the handshake's own bytes is read.
///
/// Errors: those of the stream.
pub fn handshake<S: Read + Write>(stream: &mut S, export: &Export) -> io::Result<Outcome> {
    let mut hello = Vec::with_capacity(18);
    hello.extend(SERVER_MAGIC.to_be_bytes());
    hello.extend(OPTION_MAGIC.to_be_bytes());
    hello.extend((FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
    stream.write_all(&hello)?;
    let flags = u32::from_be_bytes(take(stream)?);
    if flags & !u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES) != 0 {
        return Ok(Outcome::Ended);
    }
    let mut dialogue = Dialogue {
        stream,
        export,
        fixed: flags & u32::from(FLAG_FIXED_NEWSTYLE) != 0,
        zeroes: flags & u32::from(FLAG_NO_ZEROES) == 0,
        terms: Terms::default(),
    };
    for _ in 0..limits::HANDSHAKE_OPTIONS_MAX {
        if let Next::End(outcome) = dialogue.one_option()? {
            return Ok(outcome);
        }
    }
    Ok(Outcome::Ended)
}

struct Dialogue<'a, S> {
    stream: &'a mut S,
    export: &'a Export,
    /// The client understands replies to options.
    fixed: bool,
    /// The client wants the 124 zero bytes after EXPORT_NAME.
    zeroes: bool,
    terms: Terms,
}

impl<S: Read + Write> Dialogue<'_, S> {
    fn one_option(&mut self) -> io::Result<Next> {
        let magic = u64::from_be_bytes(take(self.stream)?);
        let option = u32::from_be_bytes(take(self.stream)?);
        let len_bytes = u32::from_be_bytes(take(self.stream)?);
        if magic != OPTION_MAGIC || (!self.fixed && option != option::EXPORT_NAME) {
            return Ok(Next::End(Outcome::Ended));
        }
        if len_bytes > limits::HANDSHAKE_OPTION_BYTES_MAX {
            return self.too_big(option, len_bytes);
        }
        let mut data = vec![0; len_bytes as usize];
        self.stream.read_exact(&mut data)?;
        match option {
            option::EXPORT_NAME => self.export_name(&data),
            option::ABORT => {
                // The client may have left without waiting for the answer.
                let _ = self.reply(option, option_reply::ACK);
                Ok(Next::End(Outcome::Ended))
            }
            option::LIST => self.list(&data),
            option::INFO | option::GO => self.info(option, &data),
            option::STRUCTURED_REPLY => self.structured_reply(&data),
            option::LIST_META_CONTEXT => self.list_meta_context(&data),
            option::SET_META_CONTEXT => self.set_meta_context(&data),
            _ => self.reply(option, option_reply::ERR_UNSUP),
        }
    }

    /// Refuses an option over the limit and reads past its data, as far as that is reasonable.
    fn too_big(&mut self, option: u32, len_bytes: u32) -> io::Result<Next> {
        if option == option::EXPORT_NAME || len_bytes > limits::HANDSHAKE_DRAIN_BYTES_MAX {
            return Ok(Next::End(Outcome::Ended));
        }
        let mut rest = Read::take(&mut *self.stream, u64::from(len_bytes));
        if io::copy(&mut rest, &mut io::sink())? < u64::from(len_bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.reply(option, option_reply::ERR_TOO_BIG)
    }

    /// The old way in, which can't answer errors.
    fn export_name(&mut self, name: &[u8]) -> io::Result<Next> {
        if !self.export.is_named(name) {
            return Ok(Next::End(Outcome::Ended));
        }
        let mut answer = Vec::with_capacity(10 + 124);
        answer.extend(self.export.size_bytes.to_be_bytes());
        answer.extend(
            self.export
                .flags(self.terms.structured_replies)
                .to_be_bytes(),
        );
        if self.zeroes {
            answer.extend([0; 124]);
        }
        self.stream.write_all(&answer)?;
        Ok(Next::End(Outcome::Transmission(self.terms)))
    }

    fn list(&mut self, data: &[u8]) -> io::Result<Next> {
        if !data.is_empty() {
            return self.reply(option::LIST, option_reply::ERR_INVALID);
        }
        let name = self.export.name.as_bytes();
        let len_bytes = (name.len() as u32).to_be_bytes();
        let server = [&len_bytes, name, self.export.description.as_bytes()].concat();
        let mut replies = Replies::to(option::LIST);
        replies.push(option_reply::SERVER, &server);
        self.acknowledge(replies)
    }

    fn info(&mut self, option: u32, data: &[u8]) -> io::Result<Next> {
        let Some(request) = InfoRequest::parse(data) else {
            return self.reply(option, option_reply::ERR_INVALID);
        };
        if !self.export.is_named(request.name) {
            return self.reply(option, option_reply::ERR_UNKNOWN);
        }
        let mut replies = Replies::to(option);
        request.answer(self.export, self.terms.structured_replies, &mut replies);
        let next = self.acknowledge(replies)?;
        Ok(match option {
            option::GO => Next::End(Outcome::Transmission(self.terms)),
            _ => next,
        })
    }

    fn structured_reply(&mut self, data: &[u8]) -> io::Result<Next> {
        if !data.is_empty() {
            return self.reply(option::STRUCTURED_REPLY, option_reply::ERR_INVALID);
        }
        self.terms.structured_replies = true;
        self.reply(option::STRUCTURED_REPLY, option_reply::ACK)
    }

    fn list_meta_context(&mut self, data: &[u8]) -> io::Result<Next> {
        let request = match self.meta_request(data) {
            Ok(request) => request,
            Err(refusal) => return self.reply(option::LIST_META_CONTEXT, refusal),
        };
        let mut replies = Replies::to(option::LIST_META_CONTEXT);
        if request.lists_allocation() {
            replies.push(option_reply::META_CONTEXT, &meta_context(0));
        }
        self.acknowledge(replies)
    }

    fn set_meta_context(&mut self, data: &[u8]) -> io::Result<Next> {
        // Whatever was chosen before is gone, even where this request fails.
        self.terms.allocation = false;
        let request = match self.meta_request(data) {
            Ok(request) => request,
            Err(refusal) => return self.reply(option::SET_META_CONTEXT, refusal),
        };
        self.terms.allocation = request.selects_allocation();
        let mut replies = Replies::to(option::SET_META_CONTEXT);
        if self.terms.allocation {
            replies.push(
                option_reply::META_CONTEXT,
                &meta_context(BASE_ALLOCATION_ID),
            );
        }
        self.acknowledge(replies)
    }

    fn meta_request<'d>(&self, data: &'d [u8]) -> Result<MetaRequest<'d>, u32> {
        let request = MetaRequest::parse(data).ok_or(option_reply::ERR_INVALID)?;
        if !self.terms.structured_replies {
            return Err(option_reply::ERR_INVALID);
        }
        // There is one export, so contexts chosen for it are chosen for what GO will name.
        if !self.export.is_named(request.name) {
            return Err(option_reply::ERR_UNKNOWN);
        }
        Ok(request)
    }

    fn reply(&mut self, option: u32, kind: u32) -> io::Result<Next> {
        let mut replies = Replies::to(option);
        replies.push(kind, &[]);
        self.stream.write_all(replies.bytes())?;
        Ok(Next::Option)
    }

    fn acknowledge(&mut self, mut replies: Replies) -> io::Result<Next> {
        replies.push(option_reply::ACK, &[]);
        self.stream.write_all(replies.bytes())?;
        Ok(Next::Option)
    }
}

fn take<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}
