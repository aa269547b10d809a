"""`dna data shards`: picture files to tar shards."""

from __future__ import annotations

from dna_suite.cli.argv import Parser

MEGABYTES = 512


def write(arguments: list[str]) -> int:
    """Write a data set of picture files as uncompressed tar shards.

    Raises:
        DnaError: the source is not in ImageNet's layout, or the target holds something.
    """
    parser = Parser(
        "dna data shards", "write class folders of pictures as tar shards that are read at random; pixels, order and keys stay"
    )
    parser.add_argument("root", metavar="ROOT", help="folder with train and val, in ImageNet's layout")
    parser.add_argument("folder", metavar="DIR", help="new folder")
    parser.add_argument("--megabytes", type=int, default=MEGABYTES, metavar="N", help=f"largest size of a shard ({MEGABYTES})")
    given = parser.parse_args(arguments)
    if given.megabytes < 1:
        parser.error(f"--megabytes {given.megabytes}: 1 or more")
    from dna_suite.data.imagenet import ImageNet
    from dna_suite.data.shard_writing import write_shards

    counts = write_shards(ImageNet(root=given.root), given.folder, given.megabytes * 10**6)
    for name, (shards, pictures) in counts.items():
        print(f"{given.folder}/{name}: {pictures} pictures in {shards} shard{'' if shards == 1 else 's'}")
    print(f"use it with --data.root={given.folder}")
    return 0
