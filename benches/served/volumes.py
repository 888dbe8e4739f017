"""Volumes of one payload size, each written full before anything is timed."""

import os

from .machine import Failed, find, need, run

MIB = 1 << 20
# Room for either header, the same for all volumes, so that payloads start alike.
HEADER_BYTES = 16 * MIB
PASSPHRASE = b"a passphrase of no secret whatever"

XTS_512 = ["--cipher", "aes-xts-plain64", "--key-size", "512"]
LUKS2 = ["--type", "luks2", "--luks2-metadata-size", "16k", "--luks2-keyslots-size", "16352k"]
FORMATS = {
    "luks2-512": [*LUKS2, *XTS_512, "--sector-size", "512"],
    "luks2-4096": [*LUKS2, *XTS_512, "--sector-size", "4096"],
    "luks1": ["--type", "luks1", *XTS_512],
    "cbc": ["--type", "luks1", "--cipher", "aes-cbc-essiv:sha256", "--key-size", "256"],
    "raw": None,
}


class Volumes:
    """The files below the servers, made when first asked for."""

    def __init__(self, place, payload_bytes):
        self.place = place
        self.payload_bytes = payload_bytes
        self.made = {}
        self.key_file = place.path("key")
        with open(self.key_file, "wb") as f:
            f.write(PASSPHRASE)
        self.random_file = place.path("random")
        free = os.statvfs(place.folder)
        needed = (len(FORMATS) + 1) * (payload_bytes + HEADER_BYTES)
        if free.f_bavail * free.f_frsize < needed:
            raise Failed(f"{place.folder}: needs {needed >> 20} MiB; choose another with --dir")
        with open(self.random_file, "wb") as f:
            for _ in range(0, payload_bytes, MIB):
                f.write(os.urandom(MIB))

    def path(self, name):
        """The volume's file. Its payload isn't written yet when it is new."""
        if name not in self.made:
            self.made[name] = self.make(name)
        return self.made[name]

    def make(self, name):
        path = self.place.path(f"{name}.img")
        options = FORMATS[name]
        header_bytes = 0 if options is None else HEADER_BYTES
        with open(path, "wb") as f:
            f.truncate(header_bytes + self.payload_bytes)
        if options is not None:
            need("cryptsetup")
            run(
                [find("cryptsetup"), "luksFormat", "-q", "--disable-locks", *options]
                + ["--offset", str(HEADER_BYTES // 512)]
                + ["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"]
                + ["--key-file", self.key_file, path],
                timeout_s=60,
            )
        return path
