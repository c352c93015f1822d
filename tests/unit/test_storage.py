import json
import zipfile

import numpy as np
import pytest

from misspec import storage
from misspec.errors import StorageError

ARRAYS = {"points": np.arange(6.0).reshape(2, 3), "counts": np.array([1, 2])}


def test_round_trip(tmp_path):
    path = tmp_path / "a.misspec"
    storage.write(path, "policy", 3, {"name": "é", "values": [1, 2.5, None]}, ARRAYS)
    document, version, arrays = storage.read(path, "policy", newest=3)
    assert document == {"name": "é", "values": [1, 2.5, None]}
    assert version == 3
    for name, values in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], values)
        assert arrays[name].dtype == values.dtype
    first = path.read_bytes()
    storage.write(path, "policy", 3, {"name": "é", "values": [1, 2.5, None]}, ARRAYS)
    assert path.read_bytes() == first  # equal contents, equal files
    assert [p.name for p in tmp_path.iterdir()] == ["a.misspec"]  # no temporary is left


def test_nothing_is_pickled(tmp_path):
    with pytest.raises(ValueError, match="allow_pickle"):
        storage.write(tmp_path / "a", "policy", 1, {}, {"o": np.array([object()])})
    with pytest.raises(TypeError):
        storage.write(tmp_path / "a", "policy", 1, {"o": object()})
    with pytest.raises(ValueError, match="JSON"):
        storage.write(tmp_path / "a", "policy", 1, {"o": float("nan")})
    assert not list(tmp_path.iterdir())


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a"
    storage.write(path, "policy", 1, {"old": True})

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        storage.write(path, "policy", 1, {"old": False})
    assert storage.read(path, "policy", 1)[0] == {"old": True}
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_damage_is_noticed(tmp_path):
    path = tmp_path / "a"
    storage.write(path, "policy", 1, {"x": list(range(1000))}, ARRAYS)
    whole = path.read_bytes()
    for cut in (0, 10, len(whole) // 2, len(whole) - 3):
        path.write_bytes(whole[:cut])
        with pytest.raises(StorageError, match="damaged"):
            storage.read(path, "policy", 1)
    rng = np.random.default_rng(0)
    for _ in range(300):  # single bytes
        spoiled = bytearray(whole)
        spoiled[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(spoiled))
        try:
            document, _, _ = storage.read(path, "policy", 1)
        except StorageError:
            continue
        assert document == {"x": list(range(1000))}  # a byte that carries nothing
    with zipfile.ZipFile(tmp_path / "b", "w") as archive, zipfile.ZipFile(_written(tmp_path / "c")) as source:
        for name in source.namelist():
            archive.writestr(name, b"{}" if name == storage.DOCUMENT else source.read(name))
    with pytest.raises(StorageError, match="does not match its checksum"):
        storage.read(tmp_path / "b", "policy", 1)


def _written(path):
    storage.write(path, "policy", 1, {"x": 1})
    return path


def test_wrong_files(tmp_path):
    path = _written(tmp_path / "a")
    with pytest.raises(StorageError, match="holds a policy, expected a trace"):
        storage.read(path, "trace", 1)
    with pytest.raises(StorageError, match="newer misspec"):
        storage.read(path, "policy", 0)
    with pytest.raises(StorageError, match="does not exist"):
        storage.read(tmp_path / "none", "policy", 1)
    with pytest.raises(StorageError, match="folder that exists"):
        storage.write(tmp_path / "none" / "a", "policy", 1, {})
    with zipfile.ZipFile(tmp_path / "f", "w") as archive:
        archive.writestr(storage.MANIFEST, json.dumps({"format": 99, "kind": "policy", "version": 1, "sha256": {}}))
    with pytest.raises(StorageError, match="container format 99"):
        storage.read(tmp_path / "f", "policy", 1)


def test_a_new_file_has_the_permissions_of_any_other(tmp_path):
    (tmp_path / "other").write_text("")
    storage.replace(tmp_path / "ours", b"content")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "other").stat().st_mode
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "ours"]
