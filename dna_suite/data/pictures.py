"""One picture file to uint8 RGB, with a limit on its size that is checked before anything is decoded."""

from __future__ import annotations

import io
import struct
import threading
import warnings
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor
from torchvision.io import ImageReadMode, decode_image

from dna_suite.errors import DnaError

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff", ".gif"})
MAX_PIXELS = 178_956_970
# What libraries raise on damaged data.
DAMAGE = (OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, TypeError)

# Pillow warns of metadata that it cannot read, once for each file; pixels do not depend on it.
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
# torchvision 0.29 announces at every call that TorchCodec will take over; 0.29 is the newest that the bounds allow.
warnings.filterwarnings(
    "ignore", category=DeprecationWarning, message="The image decoding and encoding capabilities of TorchVision"
)


class UnreadablePicture(DnaError):
    """A picture that cannot be used; the message begins with its path.

    Args:
        message: path and reason. Loaders raise a worker's error again with its traceback as the message: the last line is ours.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message.rstrip().rpartition("UnreadablePicture: ")[2])


def is_picture(name: str) -> bool:
    """Whether a file name ends like a picture."""
    return Path(name).suffix.lower() in SUFFIXES


def read_picture(path: str | Path, max_pixels: int = MAX_PIXELS) -> Tensor:
    """A picture file as uint8 [3, height, width]; see `decode_picture`.

    Raises:
        UnreadablePicture: the file is missing, empty, damaged, cut short or too large.
    """
    return decode_picture(read_bytes(path), path, max_pixels)


def read_bytes(path: str | Path) -> bytes:
    """The content of a file.

    Raises:
        UnreadablePicture: it is missing or cannot be read.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError as problem:
        raise UnreadablePicture(f"{path}: {problem.strerror}") from None


def decode_picture(data: bytes, path: str | Path, max_pixels: int = MAX_PIXELS) -> Tensor:
    """An encoded picture as uint8 [3, height, width].

    Grey, palette, 1-bit and CMYK pictures become RGB. Transparency is dropped: a pixel keeps the colour stored for it, whatever
    its alpha. The orientation that EXIF may state is not applied. The content decides about the format, not the name.

    Args:
        data: JPEG, PNG or any other format that Pillow reads.
        path: where it comes from, for messages.
        max_pixels: a picture with more is refused from its header.

    Raises:
        UnreadablePicture: it is empty, damaged, cut short or too large.
    """
    if not data:
        raise UnreadablePicture(f"{path}: empty file")
    try:
        width, height, channels = read_jpeg_header(data)
        if channels in (1, 3):
            check_size(path, width, height, max_pixels)
            return decode_image(torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.RGB)
        with OWN_GUARD, Image.open(io.BytesIO(data)) as image:
            check_size(path, *image.size, max_pixels)
            return convert(image)
    except UnreadablePicture:
        raise
    except UnidentifiedImageError:
        raise UnreadablePicture(f"{path}: not a picture in a known format") from None
    except RuntimeError:
        raise UnreadablePicture(f"{path}: damaged or cut short") from None
    except DAMAGE as problem:
        raise UnreadablePicture(f"{path}: damaged ({str(problem) or type(problem).__name__})") from None


def check_size(path: str | Path, width: int, height: int, max_pixels: int) -> None:
    """Refuse a picture with more than `max_pixels`.

    Raises:
        UnreadablePicture: with path and pixel count.
    """
    if width * height > max_pixels:
        raise UnreadablePicture(f"{path}: {width} x {height} = {width * height} pixels, data.max_pixels is {max_pixels}")


def read_jpeg_header(data: bytes) -> tuple[int, int, int]:
    """Width, height and channels of a JPEG; 0, 0, 0 for anything else.

    A tenth of what opening it with Pillow costs, which also looks at EXIF blocks and warns of each damaged one.

    Source: ITU-T T.81, B.1.1.3 (markers) and B.2.2 (frame header).
    """
    place = 2 if data[:2] == b"\xff\xd8" else len(data)
    while place + 10 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if marker == 0xFF:  # fill byte
            place += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # start of frame
            height, width, channels = struct.unpack_from(">HHB", data, place + 5)
            return width, height, channels
        else:
            place += 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    return 0, 0, 0


def convert(image: Image.Image) -> Tensor:
    """An opened picture as uint8 [3, height, width]; 16-bit grey keeps its upper 8 bits.

    Raises:
        ValueError: pixels of 32 bits, whose range nobody states.
    """
    image.load()
    if image.mode in ("I", "F"):
        raise ValueError("32-bit pixels")
    if image.mode.startswith("I;16"):
        grey = (np.asarray(image) >> 8).astype(np.uint8)
        return torch.from_numpy(grey).expand(3, -1, -1).clone()
    # A palette's transparency would only make Pillow warn that RGB cannot keep it.
    image.info.pop("transparency", None)
    return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)


class OwnGuard:
    """Our limit in place of Pillow's two, which are global, as long as any thread is inside."""

    def __init__(self) -> None:
        self.lock, self.inside, self.theirs = threading.Lock(), 0, Image.MAX_IMAGE_PIXELS

    def __enter__(self) -> None:
        with self.lock:
            if self.inside == 0:
                self.theirs, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
            self.inside += 1

    def __exit__(self, *problem: object) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                Image.MAX_IMAGE_PIXELS = self.theirs


OWN_GUARD = OwnGuard()
