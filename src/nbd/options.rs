//! The data of handshake options, parsed; and what each option is answered, built. Pure: no I/O.

use super::export::Export;
use super::wire::{BASE_ALLOCATION, Fields, info, option_reply};

/// The data of INFO and GO.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InfoRequest<'a> {
    /// The export that is meant.
    pub(super) name: &'a [u8],
    name_wanted: bool,
    description_wanted: bool,
    block_size_wanted: bool,
}

impl<'a> InfoRequest<'a> {
    /// `None` where the data are malformed: lengths that don't add up to what was sent.
    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(data);
        let name = fields.string()?;
        let mut request = Self {
            name,
            name_wanted: false,
            description_wanted: false,
            block_size_wanted: false,
        };
        for _ in 0..fields.u16()? {
            match fields.u16()? {
                info::NAME => request.name_wanted = true,
                info::DESCRIPTION => request.description_wanted = true,
                info::BLOCK_SIZE => request.block_size_wanted = true,
                // EXPORT is always told; unknown items must be ignored.
                _ => {}
            }
        }
        fields.is_empty().then_some(request)
    }

    /// The information replies: the export always, the rest as asked.
    pub(super) fn answer(&self, export: &Export, structured_replies: bool, out: &mut Replies) {
        let mut item = Vec::with_capacity(16);
        item.extend(info::EXPORT.to_be_bytes());
        item.extend(export.size_bytes.to_be_bytes());
        item.extend(export.flags(structured_replies).to_be_bytes());
        out.push(option_reply::INFO, &item);
        if self.block_size_wanted {
            item.clear();
            item.extend(info::BLOCK_SIZE.to_be_bytes());
            item.extend(1u32.to_be_bytes());
            item.extend(export.preferred_block_bytes.to_be_bytes());
            item.extend(Export::payload_bytes_max().to_be_bytes());
            out.push(option_reply::INFO, &item);
        }
        if self.name_wanted {
            out.push(
                option_reply::INFO,
                &[&info::NAME.to_be_bytes(), export.name.as_bytes()].concat(),
            );
        }
        if self.description_wanted {
            let text = export.description.as_bytes();
            out.push(
                option_reply::INFO,
                &[&info::DESCRIPTION.to_be_bytes(), text].concat(),
            );
        }
    }
}

/// The data of LIST_META_CONTEXT and SET_META_CONTEXT.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MetaRequest<'a> {
    /// The export that is meant.
    pub(super) name: &'a [u8],
    /// No query was sent.
    no_queries: bool,
    /// `base:allocation` was asked for.
    allocation: bool,
    /// `base:` was asked for.
    wildcard: bool,
}

impl<'a> MetaRequest<'a> {
    /// `None` where the data are malformed. Queries of other namespaces, and unknown names in
    /// `base:`, are ignored as the specification demands.
    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(data);
        let name = fields.string()?;
        let count = fields.u32()?;
        let mut request = Self {
            name,
            no_queries: count == 0,
            allocation: false,
            wildcard: false,
        };
        // Each query takes four bytes or more, so the data bound the loop, whatever the count.
        for _ in 0..count {
            match fields.string()? {
                BASE_ALLOCATION => request.allocation = true,
                b"base:" => request.wildcard = true,
                _ => {}
            }
        }
        fields.is_empty().then_some(request)
    }

    /// Whether LIST tells of `base:allocation`.
    pub(super) fn lists_allocation(&self) -> bool {
        self.no_queries || self.allocation || self.wildcard
    }

    /// Whether SET chooses `base:allocation`; wildcards choose nothing.
    pub(super) fn selects_allocation(&self) -> bool {
        self.allocation
    }
}

/// The data of a reply that names a metadata context.
pub(super) fn meta_context(id: u32) -> Vec<u8> {
    [&id.to_be_bytes(), BASE_ALLOCATION].concat()
}

/// The replies to one option, sent in one piece.
#[derive(Debug)]
pub(super) struct Replies {
    option: u32,
    bytes: Vec<u8>,
}

impl Replies {
    /// No reply yet to `option`.
    pub(super) fn to(option: u32) -> Self {
        Self {
            option,
            bytes: Vec::with_capacity(128),
        }
    }

    /// Adds a reply of type `kind`.
    pub(super) fn push(&mut self, kind: u32, data: &[u8]) {
        self.bytes
            .extend(super::wire::OPTION_REPLY_MAGIC.to_be_bytes());
        self.bytes.extend(self.option.to_be_bytes());
        self.bytes.extend(kind.to_be_bytes());
        self.bytes.extend((data.len() as u32).to_be_bytes());
        self.bytes.extend(data);
    }

    /// What goes over the wire.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn info(name: &[u8], items: &[u16]) -> Vec<u8> {
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend(name);
        data.extend((items.len() as u16).to_be_bytes());
        items
            .iter()
            .for_each(|item| data.extend(item.to_be_bytes()));
        data
    }

    fn meta(name: &[u8], queries: &[&[u8]]) -> Vec<u8> {
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend(name);
        data.extend((queries.len() as u32).to_be_bytes());
        for query in queries {
            data.extend((query.len() as u32).to_be_bytes());
            data.extend(*query);
        }
        data
    }

    #[test]
    fn info_requests_name_what_they_want() {
        let data = info(b"disk", &[3, 0x1234, 1]);
        let request = InfoRequest::parse(&data).unwrap();
        assert_eq!(request.name, b"disk");
        assert!(request.block_size_wanted && request.name_wanted && !request.description_wanted);
    }

    #[test]
    fn lengths_must_add_up() {
        let data = info(b"disk", &[3]);
        for len in 0..data.len() {
            assert_eq!(InfoRequest::parse(&data[..len]), None);
        }
        assert_eq!(InfoRequest::parse(&[&data[..], b"x"].concat()), None);
        let data = meta(b"disk", &[b"base:allocation"]);
        for len in 0..data.len() {
            assert_eq!(MetaRequest::parse(&data[..len]), None);
        }
        assert_eq!(MetaRequest::parse(&[&data[..], b"x"].concat()), None);
    }

    #[test]
    fn wildcards_list_and_never_select() {
        let of = |queries: &[&[u8]]| {
            let data = meta(b"", queries);
            let request = MetaRequest::parse(&data).unwrap();
            (request.lists_allocation(), request.selects_allocation())
        };
        assert_eq!(of(&[]), (true, false));
        assert_eq!(of(&[b"base:"]), (true, false));
        assert_eq!(of(&[b"base:allocation"]), (true, true));
        assert_eq!(
            of(&[b"qemu:dirty-bitmap:x", b"base:allocation"]),
            (true, true)
        );
        assert_eq!(of(&[b"base:allocations", b"x-y:", b""]), (false, false));
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(data in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = InfoRequest::parse(&data);
            let _ = MetaRequest::parse(&data);
        }
    }
}
