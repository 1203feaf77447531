import base64
import io
import re
import subprocess
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from touchfs.containers.tar.layout.header import build_header, end_of_archive, padding
from touchfs.containers.tar.layout.links import link_targets
from touchfs.containers.tar.layout.members import Member, MemberType, members
from touchfs.core.errors import FormatError

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}

# A file of 253957 bytes with 30 pieces of 4096 and holes between them, by GNU tar 1.34 in its four sparse formats
SPARSE = {
    "old": (
        r"c-rmLQAz?)6oBDzC$1oznLF2ow1P=QBvi^I+<j(3MxDou4&V23&s^a@4C-dw9`7F3+vXR|PHHLV^W^K<*N=JLmpYW;Ja?z3u9@C9H*na$j"
        r"L*|)^JiwCE^~V|cfoxL?(4Vv$$6f?e=r2w+hBVeY;S|@ZT<Pa3;JEq?}C08^!uRS2mL<i_d&k|{Sx#`&@VxM2>L_NAA<f6^y~Nj<of%s!J"
        r"ZoIsllFk@E-G^fB8{f{{y(K5dZ)HNN)iE005-71ONa4(pv!l008N&0RRAi^d12K0D$y10000$dOH9B03f|50000Wy*&T`0Fd4R0000;?-c"
        r"+507&l$0001_Hv#|v0O>6N004mWmH+?%Kzb_x001DpH2?qrklrHz005BQ1^@s6NN)!K005--1ONa4q_+nE007cE00000>AeB~008M70RRA"
        r"i^hN*x03f{u0001x-Vy)+07!2I0001_*8l(j000000PwH90p(b}H~"
    ),
    "0.0": (
        r"c-rmO!A_h&00!Va?^E~$D-1BeVbATU>7@^VTQnQHZWTAWefqA}gBsJ;N!!Hf_gx@N{s2D=%;NataQl87K95(^@n*Q#FHY7Mvp=gih;@CxJ"
        r"$SyYs^+lYR&{LZ=KgqDwpBYjx}E(4yXktkI$X-^{}kfUyAPih)7Rl@8W+?0+qeu()i>=tw2wzFcAJwg+tvBBtjc+)9uI9#Pp9#ES<FNCJh"
        r"8tXr)6FAasKo?50S3y!_QOg3#l?zUH$r4sGByvK30V`cCU}!jT8y7zHAaIX%4d|p_14%RYE0)$r%zVxqI3PmGp<tK|&>cR~5ggq<iV*I(("
        r"`6n2;;$*mViH5W22N$W>+0hLl_%VoEP{TQ@1aG)=5idbykADZR9zs8V|AiV#wI>AJd1>7|dcNa!ULbyp<x63Wo`3B80+mR+5a>#H`Qmr%7"
        r"$OzGv}r`5ceE9Ns^^p}==zrX&g;*b3&>%XEc>e*58mezmIZ|;p40001h?5zL*0D$a`0000$_RatR0D$bR0RRAi?41Ju007zB00000+1mmD"
        r"007y$1ONa4vNr($007zB0RR91*}DM%006SL2LJ#7vNr$#007xr0RR91*&6`>0D$bB0RR91*;@ku007xL2LJ#7vbO;M006SL1poj5vUdpp0"
        r"03lf0ssI2vbO^O006Rg0{{R3WN!}u003lf00000vbO>N006Q#0ssI2**gOO006Q#0{{R300028@g3H3cWn"
    ),
    "0.1": (
        r"c-rmMNlx5A6b9g4a|#ZCni@PV*d|#;k)j;H5DT@SnK}r_>C>U@1XyGf6p70BE$k<keh>Akygd9g+<zE{uj9?;a6Mc+ERR<gi`NylnyPv{Z"
        r"@oN+HsnQUbJf&U{dhgbHaCm?`^7(SyZJWUY+q&Ze@e~%`;T9io2%hwGcGr)@8eObb6>Z6seL+fal1Y~zdSkH9Obx|x@SYfdOVt!&R%ZA)4"
        r"}y{brcS&&^HHN?9;A_P422)nX0;Nc4ba&)9uQihbdL{v7Tb}c8yH2rmpi8Yjc~r-%prg{dN&evA)Y;ipA|ZoNj**W7Tw1Fs9UXQ!?fl+WA"
        r"FupPD&awN*W5>$<7BCm%Cs+Z6Jg?Lta(w(F`mXZxlJQ#OUF3sW}5)Xx)?QjEW5DD`=sqLkZuo}*ox4#M7F^?!M|ZPw?<UcFnLkIPtxI==F"
        r"c;E(%1H@o`T{;#$TS?q_mwEtgz+#4|f0002RI{^Ry0E#yP0002RI|Tp$0E)K)0001rcLo3e02FTx0000K?-Bq204Uxy0000`ybS;V08qSJ"
        r"0001>cy|B*06_5`0001h;tc=*06_6h0001h;*9_R06_6h0RRAi;;jGx0D$710RR91#ajaa0070i1ONa4igyhF000zk0{{R36z>)Q001c79"
        r"RL6TP`n2K005wP0{{R3P`ncW005wPBLDyZP`pzB005wP3jhEB000000N%78{_egf"
    ),
    "1.0": (
        r"c-rmN&2G~`6b8_&^Avr8bY}d&=oVNZB*X)lVpX9{N)xKKJUu3{p>)BjLUcH15nqk<Irfa_dUg7)zkf6IpN8H3bklDiRv*{f#q$cIx-1XJ("
        r"bHpyWxWVZQPx#i9mZp9ie_<gzxWGo_h0+ncq@zlQ%WbV-+ox_zx2EPu-f#WuXks0`DApx9Y@15wU0-){bo3u-<V|)9-rF{{ndW`Z8%F+(N"
        r")cI!9QwsIxgG$!>YYnUk$5Rg(^LBBlzR~FY0)xf7}0MOy%MvyrljA^x<BJA}+(S3|+l!W0#Iqtc$ihmZ_|o`dAjJsoP`u<7Y~hU96^9H7?"
        r";4tE;M*Vq+&y?XQ2BV%^x|r&!k(VT#4^HJL8IjN@0Koq{o?ww;o(h@qKpwCGYjXUnFn=4@5fW&7x1=4_KfF=yM5(wuGEGS1nquEUf~p=`s"
        r"HO)+)z1f>+?&lyTxF;7t{nrfb-sq=+@y!Z70002Pt&H(@bfb0zb002PtE&u=kfb6XS004mOT>=0A0NL9B0002ly9NLN0J3)j0001FZw~+f"
        r"0A%kL0002U-W>n{0Fb>00000Wdp!UE0Fb?N0000WdjkLf0Fb>40000Wduspy03dsp0000$_BH?j06_Mx0RRAi?A-tW007zB0{{R3*}DY*0"
        r"06Rg2LJ#7WbXk00078d4*&oFWbYgR0079|00000WbXn10079|0ssI200000c=5gi3NN=F"
    ),
}


class Tar:
    """Bytes as a source that refuses what lies outside, and remembers how much was read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.bytes_read = 0

    def read(self, offset: int, length: int) -> memoryview:
        assert offset >= 0
        assert length > 0
        assert offset + length <= len(self.data)
        self.bytes_read += length
        return memoryview(self.data)[offset : offset + length]

    def members(self) -> Iterator[Member]:
        return members(self.read, len(self.data))


def listed(data: bytes) -> list[Member]:
    return list(Tar(data).members())


def failed(data: bytes) -> tuple[list[Member], FormatError]:
    """The members before the damage, and what was said of it."""
    found = []
    with pytest.raises(FormatError) as caught:
        for member in Tar(data).members():
            found.append(member)
    return found, caught.value


def tar_of(*infos: tarfile.TarInfo | str, format: int = tarfile.PAX_FORMAT, pax: dict[str, str] | None = None) -> bytes:
    """Of a name, a file with that name in it."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=format, pax_headers=pax) as archive:
        for info in infos:
            if isinstance(info, str):
                data = info.encode("utf-8", "surrogateescape")
                info = tarfile.TarInfo(info)
                info.size = len(data)
            else:
                data = bytes(info.size)
            archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0, mtime: float = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size, info.mtime = kind, link, size, mtime
    return info


def block(**fields: bytes) -> bytes:
    """A header made by hand, with a right checksum unless one is given."""
    places = {
        "name": 0,
        "size": 124,
        "mtime": 136,
        "checksum": 148,
        "type": 156,
        "link": 157,
        "magic": 257,
        "prefix": 345,
    }
    made = bytearray(build_header("x", 0))
    for name, value in fields.items():
        made[places[name] : places[name] + len(value)] = value
    if "checksum" not in fields:
        made[148:156] = b" " * 8
        made[148:156] = b"%06o\0 " % sum(made)
    return bytes(made)


def pax_block(records: bytes, kind: bytes = b"x") -> bytes:
    return block(type=kind, size=b"%011o" % len(records)) + records + padding(len(records))


def record(keyword: str, value: str) -> bytes:
    rest = f" {keyword}={value}\n".encode()
    return b"%d" % (len(rest) + len(str(len(rest) + 2))) + rest


KINDS = {
    tarfile.REGTYPE: MemberType.FILE,
    tarfile.AREGTYPE: MemberType.FILE,
    tarfile.CONTTYPE: MemberType.FILE,
    tarfile.DIRTYPE: MemberType.DIRECTORY,
    tarfile.LNKTYPE: MemberType.HARD_LINK,
    tarfile.SYMTYPE: MemberType.SYMBOLIC_LINK,
    tarfile.FIFOTYPE: MemberType.OTHER,
    tarfile.CHRTYPE: MemberType.OTHER,
    tarfile.BLKTYPE: MemberType.OTHER,
}
bytes_in_text = st.binary(min_size=1, max_size=30).map(lambda data: data.decode("utf-8", "surrogateescape"))
names = (
    (st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40) | bytes_in_text)
    .flatmap(lambda text: st.sampled_from([text, "d/" * 60 + text, text * 20]))
    .map(lambda text: text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape"))
    .filter(lambda text: "\0" not in text and text.strip("/"))
)
infos = st.builds(
    entry,
    names,
    st.sampled_from(list(KINDS)),
    st.just("") | names,
    st.integers(0, 1500),
    st.integers(-(2**33), 2**33) | st.floats(1, 2**33),
)


@settings(deadline=None)
@given(st.lists(infos, max_size=6), st.sampled_from(sorted(FORMATS)))
def test_what_tarfile_writes(wanted: list[tarfile.TarInfo], format: str) -> None:
    for info in wanted:
        if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE):
            info.size = 0
        if info.type == tarfile.AREGTYPE:  # tarfile takes it for a directory when its cut name ends in a slash
            info.name = info.name[:20].strip("/") or "x"
        if format == "ustar":  # which has no more room
            info.mtime = abs(int(info.mtime)) % 8**11
            info.name, info.linkname = info.name[:30].strip("/") or "x", info.linkname[:20]
    try:
        stored = tar_of(*wanted, format=FORMATS[format])
    except ValueError:  # no room in ustar for such a name
        return
    with tarfile.open(fileobj=io.BytesIO(stored)) as archive:
        expected = archive.getmembers()
    found = listed(stored)
    assert [member.name.rstrip("/") for member in found] == [info.name.rstrip("/") for info in expected]
    assert [member.kind for member in found] == [KINDS[info.type] for info in expected]
    assert [member.header_offset for member in found] == [info.offset for info in expected]
    assert [(member.offset, member.size) for member in found] == [(info.offset_data, info.size) for info in expected]
    assert [member.link for member in found] == [info.linkname * (info.islnk() or info.issym()) for info in expected]
    for member, info in zip(found, expected, strict=True):
        assert member.mtime_ns / 1e9 == pytest.approx(info.mtime, abs=1e-6)
        assert member.pieces is None
    starts = [member.header_offset for member in found]
    assert [member.end for member in found][:-1] == starts[1:]


@given(names, st.integers(0, 2**40), st.integers(-(2**34), 2**40))
def test_a_header_is_what_tarfile_writes(name: str, size: int, mtime: int) -> None:
    assert build_header(name, size, mtime) == entry(name, size=size, mtime=mtime).tobuf()


@given(st.lists(st.tuples(names, st.binary(max_size=2000)), max_size=30))
def test_an_archive_is_what_tarfile_writes(files: list[tuple[str, bytes]]) -> None:
    theirs = io.BytesIO()
    ours = b""
    with tarfile.open(fileobj=theirs, mode="w") as archive:
        for name, data in files:
            archive.addfile(entry(name, size=len(data)), io.BytesIO(data))
            ours += build_header(name, len(data)) + data + padding(len(data))
    assert ours + end_of_archive(len(ours)) == theirs.getvalue()
    found = listed(theirs.getvalue())
    assert [(member.name, ours[member.offset :][: member.size]) for member in found] == files


def test_a_header_refuses_a_negative_size() -> None:
    with pytest.raises(FormatError, match="-1 bytes"):
        build_header("x", -1)


def test_headers_are_read_and_no_data() -> None:
    tar = Tar(tar_of(*(entry(f"{i}.wav", size=100_000) for i in range(50))))
    assert len(list(tar.members())) == 50
    assert tar.bytes_read < 60 * 4096


def test_headers_close_together_are_read_together() -> None:
    tar = Tar(tar_of(*(f"{i}.json" for i in range(1000))))
    reads = 0

    def read(offset: int, length: int) -> memoryview:
        nonlocal reads
        reads += 1
        return tar.read(offset, length)

    assert len(list(members(read, len(tar.data)))) == 1000
    assert reads < 30
    assert tar.bytes_read <= len(tar.data)


def test_members_come_one_by_one() -> None:
    found = Tar(tar_of("a", "b") + b"damaged").members()
    assert next(found).name == "a"
    assert next(found).name == "b"


@pytest.mark.parametrize("version", SPARSE)
def test_sparse_files_of_gnu_tar(version: str) -> None:
    stored = zlib.decompress(base64.b85decode("".join(SPARSE[version])))
    (member,) = listed(stored)
    assert (member.name, member.kind, member.size, member.mtime_ns) == ("many.bin", MemberType.FILE, 253_957, 10**18)
    assert member.pieces == tuple((8192 * i, 4096) for i in range(30))
    assert member.stored == 30 * 4096
    assert stored[member.offset :][: member.stored] == b"".join(bytes([97 + 2 * i % 26]) * 4096 for i in range(30))
    assert not any(stored[member.end :])


def sparse_tar(*records_: bytes, data: bytes = bytes(1024), size: int | None = None) -> bytes:
    size = len(data) if size is None else size
    return pax_block(b"".join(records_)) + block(name=b"s", size=b"%011o" % size) + data


REAL = record("GNU.sparse.size", "9000")
ONE = record("GNU.sparse.major", "1") + record("GNU.sparse.minor", "0") + record("GNU.sparse.realsize", "9000")


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        (sparse_tar(REAL, record("GNU.sparse.map", "0,512,8000,512")), ""),
        (sparse_tar(REAL, record("GNU.sparse.map", "0,512,8000,512,9000,0")), ""),
        (sparse_tar(REAL, record("GNU.sparse.map", "0,512,8000,511")), "does not fit its 1024 bytes"),
        (sparse_tar(REAL, record("GNU.sparse.map", "0,512,511,512")), "map of a sparse file of 9000"),
        (sparse_tar(REAL, record("GNU.sparse.map", "0,512,8600,512")), "map of a sparse file of 9000"),
        (sparse_tar(REAL, record("GNU.sparse.map", "0,512,-1,512")), "is not a number"),
        (sparse_tar(record("GNU.sparse.map", "0,512,8000,512")), "without its size"),
        (sparse_tar(ONE, data=b"1\n3\n512\n".ljust(512, b"\0") + bytes(512)), ""),
        (sparse_tar(ONE, data=b"9\n3\n512\n".ljust(512, b"\0") + bytes(512)), "does not end"),
        (sparse_tar(ONE, data=b"99999999999999999999\n".ljust(512, b"\0")), "is not a number"),
        (sparse_tar(ONE, data=b"1\nx\n512\n".ljust(512, b"\0") + bytes(512)), "is not a number"),
        (sparse_tar(ONE, data=b"", size=0), "does not end"),
        (block(type=b"S", size=b"%011o" % 512) + bytes(512), "does not fit"),
        (block(type=b"S", prefix=bytes(138) + b"\xff" * 12), "does not fit"),
    ],
)
def test_sparse_maps(stored: bytes, words: str) -> None:
    """One that is damaged costs its own member only: where the next one begins is known."""
    member, after = listed(stored + block(name=b"after"))
    assert after.name == "after"
    assert words in member.problem
    if words:
        assert member.kind is MemberType.OTHER
    else:
        assert member.problem == ""
        assert member.size == 9000
        assert member.stored in (512, 1024)


def test_an_old_sparse_map_without_an_end() -> None:
    found, error = failed(block(type=b"S", prefix=bytes(137) + b"\1"))
    assert found == []
    assert "does not end" in str(error)
    assert error.offset == 0


def test_dialects() -> None:
    big = b"\x80" + (700).to_bytes(11, "big")
    stored = b"".join(
        (
            block(name=b"old/", type=b"\0", magic=bytes(8)),
            block(name=b"old/file", type=b"\0", magic=bytes(8), size=b"  5 \0      ") + b"12345".ljust(512, b"\0"),
            block(name=b"name", prefix=b"a/long", magic=b"ustar\00000"),
            block(name=b"gnu", prefix=b"14000000000", magic=b"ustar  \0"),
            block(name=b"big", size=big) + bytes(1024),
            block(name=b"before 1970", mtime=b"\xff" * 12),
            block(name=b"strange", type=b"V", mtime=b"\x80" + b"\xff" * 11),
            block(name=b"hard", type=b"1", link=b"big", size=b"%011o" % 700),
        )
    )
    found = listed(stored)
    assert [(member.name, member.kind, member.size) for member in found] == [
        ("old", MemberType.DIRECTORY, 0),
        ("old/file", MemberType.FILE, 5),
        ("a/long/name", MemberType.FILE, 0),
        ("gnu", MemberType.FILE, 0),
        ("big", MemberType.FILE, 700),
        ("before 1970", MemberType.FILE, 0),
        ("strange", MemberType.METADATA, 0),
        ("hard", MemberType.HARD_LINK, 0),
    ]
    assert found[5].mtime_ns == -(10**9)
    assert 2**63 - 2 * 10**9 < found[6].mtime_ns < 2**63


def test_a_checksum_of_signed_bytes() -> None:
    name = "é".encode()
    made = block(name=name)
    signed = int(made[148:154], 8) - 256 * len(name)
    assert listed(block(name=name, checksum=b"%06o\0 " % signed))[0].name == "é"


def test_records_for_all_and_for_one() -> None:
    stored = b"".join(
        (
            pax_block(record("mtime", "1.5") + record("comment", "=\n"), b"g"),
            block(name=b"a"),
            pax_block(record("path", "b/ü") + record("mtime", "-2.25")),
            block(name=b"short"),
            pax_block(record("path", "lost") + record("path", "c") + record("mtime", "inf")),
            pax_block(record("size", "3")),
            block(name=b"short") + b"abc".ljust(512, b"\0"),
            pax_block(record("path", "") + record("mtime", "")),
            block(name=b"d", mtime=b"%011o" % 7),
        )
    )
    found = listed(stored)
    assert [(member.name, member.mtime_ns, member.size) for member in found] == [
        ("a", 1_500_000_000, 0),
        ("b/ü", -2_250_000_000, 0),
        ("c", 0, 3),
        ("d", 7_000_000_000, 0),
    ]
    assert [member.header_offset for member in found] == [1024, 1536, 3072, 6144]


def test_a_time_of_many_digits() -> None:
    stored = tar_of(entry("a", mtime=1795251353.121535))
    assert next(member.mtime_ns for member in listed(stored)) == 1_795_251_353_121_535_000


def test_archives_strung_together() -> None:
    one, two = tar_of("a", "b"), tar_of("c", pax={"comment": "x"})
    found = listed(one + two)
    assert [member.name for member in found] == ["a", "b", "c"]
    assert found[2].header_offset == len(one) + 1024
    assert listed(pax_block(record("path", "x"), b"g") + bytes(512) + block(name=b"own"))[0].name == "own"


@pytest.mark.parametrize("cut", [0, 1, 511, 512, 1024, 5000])
def test_no_end_of_archive(cut: int) -> None:
    whole = tar_of("a", "b")
    assert listed(whole[: 4 * 512 + cut]) == listed(whole)
    assert listed(whole[: 3 * 512 + 1]) == listed(whole), "padding is no loss"
    assert listed(bytes(cut)) == []


def test_garbage_after_the_end() -> None:
    whole = tar_of("a")
    *found, last = listed(whole + b"garbage" * 200)
    assert found == listed(whole)
    assert last == Member("", MemberType.GARBAGE, len(whole), len(whole), 1400, "", 0)
    assert listed(whole + b"x")[-1].size == 1
    assert listed(whole + bytes(100)) == found


def test_duplicate_names_are_all_there() -> None:
    assert [member.name for member in listed(tar_of("a", "a", "b", "a"))] == ["a", "a", "b", "a"]


GOOD = tar_of("good")[:1024]


@pytest.mark.parametrize(
    ("damaged", "offset", "words"),
    [
        (b"not a tar".ljust(512, b"\0"), 0, "checksum"),
        (block(checksum=b"00x000\0 "), 0, "not a number"),
        (block(checksum=b"000009\0 "), 0, "not a tar header"),
        (block(size=b"-0000000001\0"), 0, "not a number"),
        (block(size=b"\xff" * 12), 0, "-1 bytes"),
        (block(size=b"\xff" * 12, type=b"x"), 0, "-1 bytes"),
        (block(size=b"\x80" + b"\xff" * 11) + bytes(512), 0, "cut short after 512"),
        (block(size=b"%011o" % 513) + bytes(512), 0, "513 bytes and is cut short after 512"),
        (block()[:511], 0, "inside a header"),
        (b"x", 0, "inside a header"),
        (pax_block(record("path", "x")), 0, "ends between the headers"),
        (pax_block(record("path", "x")) + bytes(1024), 1024, "checksum"),
        (pax_block(record("path", "x"))[:520], 0, "declares an extension"),
        (pax_block(record("size", "99999")) + block(), 0, "99999 bytes and is cut short"),
        (block(type=b"x") * 3, 0, "ends between the headers"),
    ],
)
def test_damage(damaged: bytes, offset: int, words: str) -> None:
    found, error = failed(GOOD + damaged)
    assert found[:1] == listed(GOOD)
    assert error.offset == len(GOOD) + offset
    assert words in str(error)


ENTRY = block(name=b"z", size=b"%011o" % 5) + b"12345".ljust(512, b"\0")
LONG = record("SCHILY.xattr.user.x", "x" * (3 << 20))
NO_RECORD = "has a damaged header: .* is not a PAX record"


@pytest.mark.parametrize(
    ("before", "name", "problem"),
    [
        (pax_block(record("path", "p")), "p", ""),
        (pax_block(b"40".rjust(32, b"0") + b" path=p\n"), "p", ""),
        (pax_block(record("size", "0" * 30 + "5")), "z", ""),
        (pax_block(LONG + record("path", "p")), "p", ""),
        (pax_block(LONG + record("mtime", "1"), b"g"), "z", ""),
        (pax_block(record("path", "p") + b"16 comment=hello"), "p", NO_RECORD),
        (pax_block(b"11 comment=" + record("path", "p")), "z", NO_RECORD),
        (pax_block(b"9 path=p"), "z", NO_RECORD),
        (pax_block(b"9 path=pX"), "z", NO_RECORD),
        (pax_block(b"11 path=x\n"), "z", NO_RECORD),
        (pax_block(b"8 path=x\n"), "z", NO_RECORD),
        (pax_block(record("a", "b") + b"9 pathsx\n"), "z", NO_RECORD),
        (pax_block(b"99999999999999999999999 path=x\n"), "z", NO_RECORD),
        (pax_block(b"4 =x\n"), "z", NO_RECORD),
        (pax_block(b"0 path=x\n"), "z", NO_RECORD),
        (pax_block(b"no records", b"g"), "z", NO_RECORD),
        (pax_block(record("size", "-1")), "z", "a PAX size of b'-1'"),
        (pax_block(record("size", "9" * 5000)), "z", "a PAX size of"),
        (block(name=b"label", type=b"V"), "z", ""),
        (block(name=b"acl", type=b"A", size=b"%011o" % 9) + b"u::rwx,\0".ljust(512, b"\0"), "z", ""),
        (block(name=b"d/", type=b"D", size=b"%011o" % 3) + b"Yz\0".ljust(512, b"\0"), "z", ""),
        (block(name=b"dump", type=b"D") + block(name=b"pipe", type=b"6", mtime=b"no time"), "z", ""),
    ],
)
def test_one_member_does_not_cost_the_others(tmp_path: Path, before: bytes, name: str, problem: str) -> None:
    """As GNU tar reads the archive, which names the same damage."""
    made = tmp_path / "x.tar"
    made.write_bytes(GOOD + before + ENTRY + block(name=b"after") + bytes(1024))
    files = {member.name: member for member in listed(made.read_bytes()) if member.kind is MemberType.FILE}
    assert list(files) == ["good", name, "after"]
    assert re.search(problem, files[name].problem)
    assert (files[name].problem == "") == (problem == "")
    theirs = subprocess.run(["tar", "-xOf", made, name], capture_output=True, check=False)
    assert theirs.stdout == b"12345"
    assert (b"Malformed extended header" in theirs.stderr or b"out of range" in theirs.stderr) == (problem != "")


def test_a_source_that_ends_early() -> None:
    whole = tar_of("a", "b", "c")
    with pytest.raises(FormatError, match="ends before its"):
        list(members(lambda offset, length: whole[:1000][offset : offset + length], len(whole)))


WHOLE = {
    name: tar_of(
        "a.wav",
        entry("dir", tarfile.DIRTYPE),
        entry("link", tarfile.SYMTYPE, "a.wav"),
        entry("n" * 90 + "/" + "m" * 90, size=600),
        "z.json",
        format=format,
    )
    for name, format in FORMATS.items()
}


@given(st.sampled_from(sorted(FORMATS)), st.integers(0, 10239), st.integers(1, 255))
def test_any_flipped_byte(format: str, position: int, change: int) -> None:
    """Data and the names that are data of a header have no checksum; nothing else can change unnoticed."""
    whole = WHOLE[format]
    expected = listed(whole)
    damaged = bytearray(whole)
    damaged[position] ^= change
    found: list[Member] = []
    try:
        for member in Tar(bytes(damaged)).members():
            found.append(member)
    except FormatError as error:
        assert error.offset is not None
        assert 0 <= error.offset <= position
    else:
        assert len(found) in (len(expected), len(expected) + 1)
        assert len(found) == len(expected) or found[-1].kind is MemberType.GARBAGE
    for member, other in zip(found, expected, strict=False):
        assert member._replace(name="") == other._replace(name="")
        assert member.name == other.name or other.header_offset + 512 <= position < other.offset - 512


@given(st.sampled_from(sorted(FORMATS)), st.integers(0, 10239))
def test_any_cut(format: str, size: int) -> None:
    whole = WHOLE[format]
    expected = listed(whole)
    found: list[Member] = []
    try:
        for member in Tar(whole[:size]).members():
            found.append(member)
    except FormatError as error:
        assert error.offset is not None
        assert 0 <= error.offset <= size
        assert found == expected[: len(found)]
    else:
        assert found == [member for member in expected if member.offset <= size]


headers = st.builds(
    block,
    name=st.binary(min_size=1, max_size=20),
    size=st.sampled_from([b"%011o" % n for n in (0, 1, 512, 600)]) | st.binary(min_size=12, max_size=12),
    type=st.sampled_from([bytes((c,)) for c in b"\0001234567xXgLKSDVM"]),
    magic=st.sampled_from([b"ustar\00000", b"ustar  \0", bytes(8)]),
    prefix=st.binary(max_size=155),
)
hostile_records = st.lists(
    st.builds(
        record,
        st.sampled_from(["path", "size", "mtime", "GNU.sparse.map", "GNU.sparse.size", "GNU.sparse.major", "x"]),
        st.sampled_from(["", "1", "600", "-1", "1,2", "0,512", "1.5", "9" * 30]),
    ),
    max_size=4,
).map(lambda records: pax_block(b"".join(records)))


@given(st.lists(headers | hostile_records | st.binary(max_size=700) | st.just(bytes(512)), max_size=12))
def test_any_blocks(parts: list[bytes]) -> None:
    stored = b"".join(parts)
    end = 0
    try:
        for member in Tar(stored).members():
            assert end <= member.header_offset <= member.offset
            assert member.offset + member.stored <= len(stored)
            assert member.size >= 0
            end = member.offset + member.stored
    except FormatError as error:
        assert error.offset is not None
        assert end <= error.offset <= len(stored)


def targets(*found: tuple[str, MemberType, str]) -> dict[int, int | None]:
    return link_targets(Member(name, kind, 0, 0, 0, link, 0) for name, kind, link in found)


FILE, HARD, SYMBOLIC, DIRECTORY = MemberType.FILE, MemberType.HARD_LINK, MemberType.SYMBOLIC_LINK, MemberType.DIRECTORY


def test_hard_links_name_earlier_members() -> None:
    assert targets(
        ("early", HARD, "a"), ("a", FILE, ""), ("b", HARD, "./a"), ("a", FILE, ""), ("c", HARD, "a"), ("d", HARD, "b")
    ) == {0: None, 2: 1, 4: 3, 5: 1}
    assert targets(("a", HARD, "a"), ("/b", FILE, ""), ("c", HARD, "/b"), ("d", HARD, "../b")) == {
        0: None,
        2: 1,
        3: None,
    }


def test_symbolic_links_are_paths_in_the_finished_tree() -> None:
    assert targets(
        ("a/x", SYMBOLIC, "../b/y"),
        ("b/y", FILE, ""),
        ("b/z", SYMBOLIC, "y"),
        ("b/y", FILE, ""),
        ("w", SYMBOLIC, "a//./x"),
    ) == {0: 3, 2: 3, 4: 3}
    assert targets(("d", DIRECTORY, ""), ("l", SYMBOLIC, "d"), ("d/f", FILE, ""), ("m", SYMBOLIC, "l/f")) == {
        1: 0,
        3: 2,
    }
    assert targets(("r/f", FILE, ""), ("s/l", SYMBOLIC, "../r"), ("t", SYMBOLIC, "s/l/../r/f")) == {1: None, 2: 0}
    assert targets(("d/f", FILE, ""), ("d/l", SYMBOLIC, "f"), ("h", HARD, "d/l")) == {1: 0, 2: None}, "f is in d"


@pytest.mark.parametrize(
    "link", ["/f", "../f", "d/../../f", "missing", "", "f/../../x", "self", "loop1", "a/" * 3000 + "f"]
)
def test_links_that_lead_nowhere(link: str) -> None:
    found = targets(
        ("f", FILE, ""), ("self", SYMBOLIC, link), ("loop1", SYMBOLIC, "loop2"), ("loop2", SYMBOLIC, "loop1")
    )
    assert found == {1: None, 2: None, 3: None}


def test_long_chains_of_links_end() -> None:
    chain = [("f", FILE, ""), *((f"l{i}", SYMBOLIC, f"l{i - 1}" if i else "f") for i in range(100))]
    found = targets(*chain)
    assert found[1] == found[30] == 0
    assert found[100] is None


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "a/b", "../a", "", "/a", "c/.."]), st.sampled_from(MemberType), names)
    )
)
def test_any_links(found: list[tuple[str, MemberType, str]]) -> None:
    for position, target in targets(*found).items():
        assert found[position][1] in (HARD, SYMBOLIC)
        assert target is None or found[target][1] not in (HARD, SYMBOLIC)
