import pickle
import resource
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from PIL import Image

from dna_suite.data.pictures import OWN_GUARD, UnreadablePicture, read_jpeg_header, read_picture

from .pictures import write_noise

COLOUR = [10, 20, 30]


def save_palette(path):
    picture = Image.new("P", (8, 8), 0)
    picture.putpalette(COLOUR + [0] * 765)
    picture.save(path, transparency=bytes([0, 255]))


def save_rgba(path):
    Image.new("RGBA", (8, 8), (*COLOUR, 0)).save(path)


def save_la(path):
    Image.new("LA", (8, 8), (77, 0)).save(path)


def save_bits(path):
    Image.new("1", (8, 8), 1).save(path)


def save_grey(path):
    Image.new("L", (8, 8), 77).save(path)


def save_16_bits(path):
    Image.fromarray(np.full((8, 8), 0x4D12, dtype=np.uint16)).save(path)


@pytest.mark.parametrize(
    ("save", "pixel"),
    [
        (save_palette, COLOUR),
        (save_rgba, COLOUR),
        (save_la, [77] * 3),
        (save_bits, [255] * 3),
        (save_grey, [77] * 3),
        (save_16_bits, [0x4D] * 3),
    ],
)
def test_every_mode_becomes_rgb_and_transparency_is_dropped(tmp_path, save, pixel):
    # IMG-07
    save(tmp_path / "x.png")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        image = read_picture(tmp_path / "x.png")
    assert image.dtype == torch.uint8
    assert image.shape == (3, 8, 8)
    assert image[:, 3, 4].tolist() == pixel


def test_cmyk_without_ink_is_white(tmp_path):
    # IMG-08
    Image.new("CMYK", (8, 8), (0, 0, 0, 0)).save(tmp_path / "x.JPEG")
    assert read_picture(tmp_path / "x.JPEG").unique().tolist() == [255]


def test_png_with_a_jpeg_name(tmp_path):
    Image.new("RGB", (8, 6), tuple(COLOUR)).save(tmp_path / "x.JPEG", format="PNG")
    image = read_picture(tmp_path / "x.JPEG")
    assert image.shape == (3, 6, 8)
    assert image[:, 0, 0].tolist() == COLOUR


def test_exif_cut_short_is_no_matter(tmp_path):
    exif = Image.Exif()
    exif[0x010E] = "a description that is longer than four bytes"
    plain, broken = tmp_path / "plain.jpg", tmp_path / "broken.jpg"
    write_noise(plain, 32, 32)
    write_noise(broken, 32, 32, exif=exif.tobytes()[:20])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert torch.equal(read_picture(broken), read_picture(plain))


def test_jpeg_pixels_are_pillows(tmp_path):
    for mode in ("RGB", "L"):
        path = tmp_path / f"{mode}.jpg"
        Image.open(write_noise(tmp_path / "x.png", 64, 48)).convert(mode).save(path)
        theirs = np.array(Image.open(path).convert("RGB"))
        assert np.array_equal(read_picture(path).permute(1, 2, 0).numpy(), theirs)


@pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "webp"])
@pytest.mark.parametrize("keep", [0.6, 0.1])
def test_cut_file_is_an_error_with_its_path(tmp_path, suffix, keep):
    path = write_noise(tmp_path / f"x.{suffix}", 64, 64)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])
    with pytest.raises(UnreadablePicture, match=f"^{path}: ") as caught:
        read_picture(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("content", "reason"), [(b"", "empty file"), (b"\0" * 4096, "not a picture")])
def test_no_picture(tmp_path, content, reason):
    (tmp_path / "x.jpg").write_bytes(content)
    with pytest.raises(UnreadablePicture, match=f"{tmp_path}/x.jpg: {reason}"):
        read_picture(tmp_path / "x.jpg")
    with pytest.raises(UnreadablePicture, match=f"{tmp_path}/y.jpg: No such file"):
        read_picture(tmp_path / "y.jpg")


def test_limit_is_ours_and_a_setting(tmp_path):
    write_noise(tmp_path / "x.png", 40, 40)
    assert read_picture(tmp_path / "x.png", max_pixels=1600).shape == (3, 40, 40)
    with pytest.raises(UnreadablePicture, match=r"x.png: 40 x 40 = 1600 pixels, data.max_pixels is 1599"):
        read_picture(tmp_path / "x.png", max_pixels=1599)


def test_pillows_guard_is_back_when_the_last_thread_leaves():
    before = Image.MAX_IMAGE_PIXELS
    assert before is not None
    with OWN_GUARD:
        with OWN_GUARD:
            assert Image.MAX_IMAGE_PIXELS is None
        assert Image.MAX_IMAGE_PIXELS is None
    assert before == Image.MAX_IMAGE_PIXELS
    with pytest.raises(KeyError), OWN_GUARD:
        raise KeyError
    assert before == Image.MAX_IMAGE_PIXELS


def test_jpeg_header_agrees_with_pillow(tmp_path):
    for mode, settings in (
        ("RGB", {"progressive": True}),
        ("L", {}),
        ("CMYK", {}),
        ("RGB", {"comment": b"x" * 3000, "dpi": (72, 72)}),
    ):
        path = tmp_path / "x.jpg"
        Image.new(mode, (37, 21)).save(path, **settings)
        assert read_jpeg_header(path.read_bytes()) == (37, 21, len(mode))
    Image.new("RGB", (4, 4)).save(tmp_path / "x.png")
    for data in (b"", b"\xff\xd8", (tmp_path / "x.png").read_bytes(), b"\xff\xd8\xff\xe0\x00\x00" * 10):
        assert read_jpeg_header(data) == (0, 0, 0)


def test_limit_of_a_jpeg(tmp_path):
    write_noise(tmp_path / "x.jpg", 40, 40)
    with pytest.raises(UnreadablePicture, match="40 x 40 = 1600 pixels"):
        read_picture(tmp_path / "x.jpg", max_pixels=1599)


def test_many_threads(tmp_path):
    before = Image.MAX_IMAGE_PIXELS
    paths = [write_noise(tmp_path / f"{i}.png", 24, 24, seed=i) for i in range(40)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(read_picture, paths))
    assert all(torch.equal(one, read_picture(path)) for one, path in zip(together, paths, strict=True))
    assert before == Image.MAX_IMAGE_PIXELS


def test_huge_picture_is_refused_from_its_header(tmp_path):
    # IMG-10: 400 million pixels in 50 kB; decoded as RGB they would take 1.2 GB.
    path = tmp_path / "huge.png"
    Image.new("1", (20000, 20000)).save(path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UnreadablePicture, match="20000 x 20000 = 400000000 pixels"):
        read_picture(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kB


def test_error_survives_a_worker():
    error = pickle.loads(pickle.dumps(UnreadablePicture("a/b.jpg: empty file")))
    assert str(error) == "a/b.jpg: empty file"
    text = (
        f"Caught UnreadablePicture in worker 0.\nOriginal Traceback:\n  x\ndna_suite.data.pictures.UnreadablePicture: {error}\n"
    )
    assert str(UnreadablePicture(text)) == "a/b.jpg: empty file"
