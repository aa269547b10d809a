from dna_suite.data.position import generator_of, seed_of


def test_a_position_always_gives_the_same_seed_in_every_process():
    # Recorded from this function: another value would change the second half of every run that is resumed.
    assert seed_of("step", 0, 1, 2) == 0xB9075ED989A8F8A3
    assert 0 <= seed_of(-1, 2**62) < 2**64


def test_every_part_counts_and_so_does_its_place():
    seeds = {seed_of(*parts) for parts in [(0, 1), (1, 0), (0, 1, 0), (1,), ("1",), ("0", 1), ("", 0, 1)]}
    assert len(seeds) == 7
    assert len({seed_of("sample", 0, epoch, index) for epoch in range(20) for index in range(500)}) == 10_000


def test_generators_of_one_place_draw_the_same_and_of_neighbours_do_not():
    first, again, neighbour = (generator_of("mixing", 0, step).random(4).tolist() for step in (7, 7, 8))
    assert first == again
    assert not set(first) & set(neighbour)
