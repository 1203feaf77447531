"""Every name and parameter that the original tool documents is here, with its kind and its default, one by one."""

import inspect
import math

import pytest

import touchfs.backend
import touchfs.cache
from touchfs.backend import ArrowBackend, LanceBackend, LanceVideoFramesBackend, StorageBackend
from touchfs.cache import Features, FeatureType
from touchfs.caches.backends.lance_video_frames import reset_worker_state

# `name`: may be positional; `*, name`: by name only; as in a signature.
FUNCTIONS = {
    "encode_example": "(example, features, *, cache_dir=None)",
    "cache_fingerprint": "(cls_name, version, config_name, split, storage_format='arrow')",
    "write_sharded_arrow_cache": (
        "(generator, features, cache_dir, *, shard_size_bytes=inf, batch_size=1000, compression=None, "
        "num_encode_workers=0, single_file=False, lineage=None, payload='compressed')"
    ),
    "write_lance_cache": ("(generator, features, cache_dir, *, batch_size=1000, num_encode_workers=0, lineage=None)"),
    "write_lance_video_frames_cache": (
        "(generator, features, cache_dir, *, video_column=None, quality=65, resize=None, workers=None, "
        "skip_corrupt=True, lineage=None)"
    ),
    "detect_cache_layout": "(cache_dir)",
    "detect_cache_format": "(cache_dir)",
    "open_cache": "(cache_dir, features, *, backend_kwargs=None)",
    "validate_sharded_cache": "(cache_dir, features)",
    "read_sharded_cache_meta": "(cache_dir)",
    "read_lance_cache_meta": "(cache_dir)",
    "read_shard": "(shard_path)",
    "CacheOpenResult": "(*, backend, num_rows, layout, metadata)",
    "ShardedCacheMeta": (
        "(cache_dir, num_rows, num_shards, shard_filenames, shard_row_counts, schema_fingerprint, compression=None)"
    ),
    "LanceCacheMeta": "(cache_dir, num_rows, schema_fingerprint)",
    "Value": "(dtype)",
    "ClassLabel": "(names=None, num_classes=None)",
    "Sequence": "(feature)",
    "Image": "(encode_format='PNG')",
    "Array3D": "(shape, dtype='uint8')",
    "Array4D": "(shape, dtype='uint8')",
    "Video": "(storage='path', allowed_extensions=('.mp4', '.avi', '.mov', '.webm', '.mkv'))",
    "VideoRef": "(cell, cache_dir=None)",
}
BACKENDS = {
    ArrowBackend: "(*, shard_paths=None, table=None, shard_row_counts=None, schema=None)",
    LanceBackend: "(*, uri, batch_readahead=8)",
    LanceVideoFramesBackend: (
        "(*, uri, window_length=1, frame_skip=0, hop_size=1, min_video_frames=None, batch_readahead=8)"
    ),
}
METHODS = {
    "get_row": "(idx)",
    "take": "(indices)",
    "slice": "(start, length)",
    "iter_batches": "(shard_indices=None, shuffle=False, seed=None)",
}


def signature(function):
    """The signature without types."""
    found = inspect.signature(function)
    parameters = [each.replace(annotation=inspect.Parameter.empty) for each in found.parameters.values()]
    if parameters and parameters[0].name == "self":
        del parameters[0]
    return str(found.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_and_classes(name):
    assert name in touchfs.cache.__all__
    assert signature(getattr(touchfs.cache, name)) == FUNCTIONS[name]


@pytest.mark.parametrize("backend", BACKENDS)
def test_backends(backend):
    assert backend.__name__ in touchfs.backend.__all__
    assert signature(backend) == BACKENDS[backend]
    for name, expected in METHODS.items():
        assert signature(getattr(backend, name)) == expected
    for name in (*METHODS, "num_rows", "num_shards", "is_file_backed", "schema", "table", "prefer_batched_take"):
        assert name in StorageBackend.__annotations__ or hasattr(StorageBackend, name)


def test_members_of_one_backend_and_of_features():
    assert signature(LanceVideoFramesBackend.segment_filename) == "(idx)"
    assert signature(LanceVideoFramesBackend.segment_info) == "(idx)"
    assert signature(LanceVideoFramesBackend.worker_init) == "(worker_id)"
    assert signature(reset_worker_state) == "()"
    assert signature(FeatureType.encode) == "(value, *, cache_dir=None)"
    assert signature(Features.to_arrow_schema) == signature(Features.fingerprint_data) == "()"
    assert issubclass(Features, dict)
    assert math.isinf(touchfs.cache.DEFAULT_SHARD_SIZE_BYTES)
    assert isinstance(touchfs.cache.ShardedCacheMeta.shard_paths, property)
