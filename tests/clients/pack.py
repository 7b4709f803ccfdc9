"""The packs of tests/data: the same files give the same bytes, whoever writes them and when."""
import io
import tarfile


def write_pack(out, files):
    """An xz-packed USTAR archive of `files`, path within it -> bytes."""
    with tarfile.open(out, "w:xz", format=tarfile.USTAR_FORMAT, preset=9) as pack:
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size = len(files[name])
            entry.mode = 0o644
            pack.addfile(entry, io.BytesIO(files[name]))
