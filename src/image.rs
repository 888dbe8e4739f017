//! Disk images as people have them: partitions inside, and foreign formats by name.
