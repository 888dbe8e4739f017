//! The sector cipher against what others wrote: published vectors, straightforward compositions of
//! other crates, and images that the kernel's dm-crypt wrote.

mod blocks;
mod corpus;
mod modes;
mod oracle;
mod refusals;
mod vectors;
mod wide;
mod wide_blocks;
