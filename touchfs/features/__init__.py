"""Features: the types of a table's columns as a user declares them, and how their values are encoded for Arrow."""

from touchfs.features.arrays import Array3D, Array4D
from touchfs.features.base import FeatureType
from touchfs.features.features import Features
from touchfs.features.file import File
from touchfs.features.fingerprints import cache_fingerprint, features_fingerprint
from touchfs.features.image import Image
from touchfs.features.labels import ClassLabel
from touchfs.features.sequence import Sequence
from touchfs.features.value import Value
from touchfs.features.video import Video
from touchfs.features.video_ref import VideoRef

__all__ = [
    "Array3D",
    "Array4D",
    "ClassLabel",
    "FeatureType",
    "Features",
    "File",
    "Image",
    "Sequence",
    "Value",
    "Video",
    "VideoRef",
    "cache_fingerprint",
    "features_fingerprint",
]
