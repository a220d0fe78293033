"""Edge values of every type that a column can have, as Postgres reads them; a type that is missing here fails the test.

Types are named as `format_type` does, without a modifier; those of extensions without their schema.
"""

from collections.abc import Mapping, Sequence

#: types that no value can be made of by SQL: keys inside an index, summaries of it
WITHOUT_VALUES = (
    *("gtsvector", "pg_brin_bloom_summary", "pg_brin_minmax_multi_summary", "ghstore", "gtrgm", "ltree_gist"),
    *("intbig_gkey", "gbtreekey2", "gbtreekey4", "gbtreekey8", "gbtreekey16", "gbtreekey32", "gbtreekey_var"),
)

EXTENSIONS = (*("hstore", "citext", "ltree", "cube", "seg", "isn", "lo", "intarray", "pg_trgm", "btree_gist"),)

#: types that users make, of every kind
MADE = """
CREATE TYPE mood AS ENUM ('sad', 'so so', 'it''s "odd", {really}', 'größer 😀', 'NULL', '');
CREATE DOMAIN price AS numeric(12, 2);
CREATE DOMAIN high_price AS price CHECK (VALUE IS NULL OR VALUE > -1);
CREATE DOMAIN code AS character(4);
CREATE DOMAIN codes AS character(4)[];
CREATE DOMAIN moment AS timestamp(3) with time zone;
CREATE DOMAIN ints AS int[];
CREATE DOMAIN tempers AS mood;
CREATE TYPE pair AS (a int, b text, at timestamptz);
CREATE TYPE deep AS (one pair, many pair[], mood mood);
CREATE DOMAIN pairs AS pair;
CREATE TYPE floatrange AS RANGE (subtype = float8);
CREATE TABLE beside (a int DEFAULT 1 + 1, b int, c text);
INSERT INTO beside SELECT g % 3, g % 6, g % 3 FROM generate_series(1, 500) g;
CREATE STATISTICS about (ndistinct, dependencies, mcv) ON a, b FROM beside;
ANALYZE beside;
"""

_TEXTS = (
    *(
        "''",
        "'x'",
        "' blanks '",
        "'NULL'",
        "'null'",
        "'größer 😀'",
        "'a\u0301 \u05d0 \u202e'",
        r"'a\b\\c'",
        "'it''s \"odd\"'",
    ),
    *("E'tab\\tline\\nreturn\\rend'", "chr(1) || chr(31) || chr(127) || chr(160)", "chr(65279) || chr(1114111)"),
    "'{curly,comma}'",
)
_DATES = ("'0001-01-01'", "'9999-12-31'", "'1970-01-01'", "'2000-02-29'", "'1582-10-10'")
_ZONED = (
    "'0001-01-01 00:00Z'",
    "'9999-12-31 23:59:59.999999Z'",
    "'1969-12-31 23:59:59.999999Z'",
    "'2024-03-31 02:30+01'",
)
_PLAIN = (
    "'0001-01-01 00:00'",
    "'9999-12-31 23:59:59.999999'",
    "'1969-12-31 23:59:59.999999'",
    "'2024-06-01 12:00:00.1'",
)
_NUMBERS = (
    *(
        "'NaN'",
        "'Infinity'",
        "'-Infinity'",
        "0",
        "-0.00",
        "1.50",
        "'1e500'",
        "'-1e-500'",
        "12345678901234567890.123456789",
    ),
    "'9' || repeat('0', 300) || '.' || repeat('1', 300)",
)
_JSON = (
    *("'{}'", "'[]'", "'null'", "'\"\"'", '\'{"b" : 1.10,  "a":[1,2e400], "b": 12345678901234567890}\'', "'0.10'"),
    *('\'{"größer 😀": "\\u00e9\\n"}\'', "' [ 1 , 2 ] '"),
)

VALUES: Mapping[str, Sequence[str]] = {
    "boolean": ("true", "false"),
    "smallint": ("-32768", "32767", "0"),
    "integer": ("-2147483648", "2147483647", "0"),
    "bigint": ("-9223372036854775808", "9223372036854775807", "0", "9007199254740993"),
    "real": ("'NaN'", "'Infinity'", "'-Infinity'", "0", "'-0'", "1e-45", "3.4028235e38", "0.1", "16777217"),
    "double precision": ("'NaN'", "'Infinity'", "'-Infinity'", "0", "'-0'", "5e-324", "1.7976931348623157e308", "0.1"),
    "numeric": _NUMBERS,
    "money": ("'-92233720368547758.08'", "'92233720368547758.07'", "0", "1.5"),
    "text": _TEXTS,
    "character varying": _TEXTS,
    "character": (*_TEXTS, "'x   '"),
    "name": ("''", "'größer'", "'\"quoted\"'", "repeat('x', 63)"),
    '"char"': ("'a'", "''", r"'\200'", r"'\377'", "'\"'"),
    "json": _JSON,
    "jsonb": _JSON,
    "jsonpath": ("'$'", "'$.a[*] ? (@ > 1 && @.b like_regex \"^x\")'", "'strict $.\"größer 😀\"'"),
    "xml": ("'<a b=\"c\">größer 😀</a>'", '\'<?xml version="1.0" encoding="latin1"?><a/>\'', "'no element'", "''"),
    "bytea": (r"'\x'", r"'\x00ff'", "decode(repeat('00017f80ff', 100), 'hex')"),
    "uuid": ("'00000000-0000-0000-0000-000000000000'", "'FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF'", "md5('x')::uuid"),
    "date": _DATES,
    "time without time zone": ("'00:00'", "'23:59:59.999999'", "'12:30:00.5'"),
    "time with time zone": ("'00:00+15:59'", "'24:00-15:59'", "'23:59:59.999999+02:30:17'"),
    "timestamp without time zone": _PLAIN,
    "timestamp with time zone": _ZONED,
    "interval": (
        *("'0'", "'1 year 2 mons -3 days 04:05:06.789'", "'-178000000 years'", "'178000000 years 11 mons'"),
        *("'-00:00:00.000001'", "'2147483647 days 1 microsecond'"),
    ),
    "bit": ("''", "'1'", "repeat('10', 40)"),
    "bit varying": ("''", "'1'", "repeat('10', 40)"),
    "inet": ("'10.0.0.1'", "'10.0.0.1/8'", "'::1'", "'2001:db8::ff/32'", "'::ffff:1.2.3.4'"),
    "cidr": ("'10.0.0.0/8'", "'10.0.0.1'", "'2001:db8::/32'"),
    "macaddr": ("'08:00:2b:01:02:03'", "'FFFFFFFFFFFF'"),
    "macaddr8": ("'08:00:2b:01:02:03:04:05'", "'08:00:2b:01:02:03'"),
    "point": ("'(0,-0)'", "'(NaN,Infinity)'", "'(1e300,-5e-324)'"),
    "line": ("'{1,-1,0}'", "'{0.1,2,-1e300}'"),
    "lseg": ("'[(0,0),(1,1)]'", "'[(NaN,1),(-Infinity,2)]'"),
    "box": ("'(2,2),(0,0)'", "'(Infinity,1),(-Infinity,0.1)'"),
    "path": ("'[(0,0),(1,1),(2,0)]'", "'((0,0),(1,1),(2,0))'"),
    "polygon": ("'((0,0),(1,1),(2,0))'", "'((0.1,1e300))'"),
    "circle": ("'<(0,0),1>'", "'<(1e300,-0.1),Infinity>'"),
    "tsvector": ("''", "'a:1A,2 fat:3B ''odd word'':4'", "'größer 😀'"),
    "tsquery": ("''", "'fat & (rat | !cat:ab) <2> ''odd word'':*'"),
    "oid": ("0", "4294967295", "1259"),
    "xid": ("'0'", "'4294967295'"),
    "xid8": ("'0'", "'18446744073709551615'"),
    "cid": ("'0'", "'4294967295'"),
    "tid": ("'(0,0)'", "'(4294967295,65535)'"),
    "pg_lsn": ("'0/0'", "'FFFFFFFF/FFFFFFFF'", "'16/B374D848'"),
    "pg_snapshot": ("'10:20:10,14,15'", "'1:1:'"),
    "txid_snapshot": ("'10:20:10,14,15'", "'1:1:'"),
    "refcursor": ("''", "'größer \"cursor\"'"),
    "aclitem": ("'=r/penstock'", "'penstock=arwd*/penstock'"),
    "int2vector": ("''", "'1 -32768 32767'"),
    "oidvector": ("''", "'1 4294967295'"),
    "regclass": ("'pg_class'", "'public.beside'", "0", "4294967295::oid"),
    "regcollation": ("'\"C\"'", "0"),
    "regconfig": ("'english'", "0"),
    "regdictionary": ("'simple'", "0"),
    "regnamespace": ("'public'", "0"),
    "regoper": ("'||/'", "0"),
    "regoperator": ("'+(integer,integer)'", "'!!(NONE,tsquery)'"),
    "regproc": ("'pg_catalog.now'", "0"),
    "regprocedure": ("'now()'", "'numeric(numeric,integer)'"),
    "regrole": ("'penstock'", "0"),
    "regtype": ("'integer'", "'public.mood'", "'timestamptz'"),
    "pg_node_tree": ("(SELECT adbin FROM pg_attrdef WHERE adrelid = 'public.beside'::regclass)",),
    "pg_ndistinct": ("(SELECT stxdndistinct FROM pg_statistic_ext_data)",),
    "pg_dependencies": ("(SELECT stxddependencies FROM pg_statistic_ext_data)",),
    "pg_mcv_list": ("(SELECT stxdmcv FROM pg_statistic_ext_data)",),
    # ranges and multiranges
    "int4range": ("'empty'", "'[1,3)'", "'(,)'", "'[-2147483648,]'"),
    "int8range": ("'empty'", "'[1,9223372036854775807)'", "'(,)'"),
    "numrange": ("'empty'", "'(1.50,1e100]'", "'[-Infinity,NaN]'"),
    "daterange": ("'empty'", "'[2024-01-01,infinity)'", "'[0044-03-15 BC,)'"),
    "tsrange": ("'empty'", "'[2024-01-01 00:00,infinity)'", "'(\"294276-12-31 23:59:59.999999\",]'"),
    "tstzrange": ("'empty'", "'[2024-01-01 00:00Z,infinity)'", "'[-infinity,2024-01-01 00:00+02]'"),
    "floatrange": ("'empty'", "'[-Infinity,NaN]'", "'(5e-324,0.1]'"),
    "int4multirange": ("'{}'", "'{[1,3),[5,9)}'", "'{(,)}'"),
    "int8multirange": ("'{}'", "'{[1,3),[5,9223372036854775807)}'"),
    "nummultirange": ("'{}'", "'{(1.50,1e100],[1e200,]}'"),
    "datemultirange": ("'{}'", "'{[2024-01-01,2024-02-01),[2025-01-01,infinity)}'"),
    "tsmultirange": ("'{}'", "'{[2024-01-01 00:00,infinity)}'"),
    "tstzmultirange": ("'{}'", "'{[2024-01-01 00:00Z,infinity)}'"),
    "floatmultirange": ("'{}'", "'{[-Infinity,1),[2,NaN]}'"),
    # what users make
    "mood": tuple(f"(enum_range(NULL::mood))[{n}]" for n in range(1, 7)),
    "tempers": ("'so so'", "'NULL'"),
    "price": ("1234567890.12", "-0.01", "0"),
    "high_price": ("1234567890.12", "-0.01"),
    "code": ("'x'", "''", "'größ'"),
    "codes": ("'{x,NULL,größ}'", "'{}'"),
    "moment": ("'2024-03-31 02:30:00.1239+01'", "'0001-01-01 00:00Z'"),
    "ints": ("'{1,NULL,-2147483648}'", "'{}'"),
    "pair": (
        "ROW(1, 'it''s \"odd\", (really) \\', '2024-01-01 00:00Z')",
        "ROW(NULL, NULL, NULL)",
        "ROW(NULL, '', 'infinity')",
    ),
    "pairs": ("ROW(1, 'x', NULL)::pair", "ROW(NULL, NULL, NULL)::pair"),
    "deep": ("ROW(ROW(1, 'x', NULL), ARRAY[ROW(2, '\"', NULL)::pair, NULL], 'so so')", "ROW(NULL, NULL, NULL)"),
    # information_schema has domains of its own
    "cardinal_number": ("0", "2147483647"),
    "character_data": _TEXTS,
    "sql_identifier": ("'größer'", "''"),
    "time_stamp": ("'2024-03-31 02:30:00.129+01'",),
    "yes_or_no": ("'YES'", "'NO'"),
    # extensions
    "hstore": ("''", '\'a=>NULL, "größer 😀"=>"\\"q\\" => x"\''),
    "citext": _TEXTS,
    "ltree": ("''", "'Top.Science.Astronomy'"),
    "lquery": ("'Top.*{0,2}.sport*@.!football|tennis.Russ*|Spain'", "'*.a|b'"),
    "ltxtquery": ("'Europe & Russia*@ & !Transportation'",),
    "cube": ("'(0)'", "'(1.5,-1e300),(NaN,2)'"),
    "seg": ("'1.50'", "'~0.1 .. 1e10'", "'< 3'"),
    "query_int": ("'1&(2|!3)'",),
    "lo": ("0", "4294967295"),
    "ean13": ("'978-0-393-04002-9'",),
    "isbn13": ("'978-0-393-04002-9'",),
    "isbn": ("'0-393-04002-X'",),
    "ismn13": ("'979-0-060-11561-5'",),
    "ismn": ("'M-060-11561-5'",),
    "issn13": ("'977-1436452-00-8'",),
    "issn": ("'1436-4522'",),
    "upc": ("'220356483481'",),
}

#: columns with a modifier, each with its values
MODIFIED: Mapping[str, Sequence[str]] = {
    "numeric(12,2)": ("0", "9999999999.99", "-9999999999.99", "0.005", "-0.001"),
    "numeric(1,0)": ("9", "-9", "0"),
    "numeric(38,0)": ("'99999999999999999999999999999999999999'", "-1"),
    "numeric(38,38)": ("'0." + "9" * 38 + "'", "'-0." + "0" * 37 + "1'"),
    "numeric(38,10)": ("'" + "9" * 28 + ".0000000001'", "-1.5"),
    "numeric(39,1)": ("'" + "9" * 38 + ".9'", "'NaN'"),
    "numeric(76,0)": ("'" + "9" * 76 + "'",),
    "numeric(1000,500)": ("'1e-500'", "'-" + "9" * 500 + "'"),
    "numeric(3,-2)": ("99900", "12345"),
    "numeric(2,5)": ("0.00099", "-0.00001"),
    "character varying(9)": ("'größer 😀'", "''"),
    "character(6)": ("'größ'", "''", "'x  '"),
    '"bit"(3)': ("'101'",),
    "bit varying(5)": ("'1'", "''"),
    "time(3)": ("'23:59:59.999'", "'12:30:00.0005'"),
    "timestamp(0)": ("'9999-12-31 23:59:59'", "'2024-01-01 00:00:00.5'"),
    "timestamp(3) with time zone": ("'2024-01-01 00:00:00.1239Z'", "'0001-01-01 00:00Z'"),
    "time(0) with time zone": ("'23:59:59-15:59'",),
    "interval(3)": ("'1 day 00:00:00.1239'",),
    "interval year to month": ("'1 year 2 mons 3 days'",),
    "interval day to second(3)": ("'-3 days 04:05:06.789'",),
}

#: values that the Arrow type cannot hold
UNFIT: Sequence[tuple[str, str]] = (
    ("date", "infinity"),
    ("date", "-infinity"),
    ("date", "10000-01-01"),
    ("date", "5874897-12-31"),
    ("date", "0001-12-31 BC"),
    ("date", "4713-01-01 BC"),
    ("time", "24:00"),
    ("timestamp", "infinity"),
    ("timestamp", "-infinity"),
    ("timestamp", "10000-01-01 00:00"),
    ("timestamp", "294276-12-31 23:59:59.999999"),
    ("timestamp", "4713-01-01 00:00 BC"),
    ("timestamp(0)", "9999-12-31 23:59:59.5"),
    ("timestamptz", "infinity"),
    ("timestamptz", "-infinity"),
    ("timestamptz", "9999-12-31 23:59:59.999999-01"),
    ("timestamptz", "0001-01-01 00:00+01"),
    ("timestamptz", "294276-12-31 23:59:59.999999Z"),
    ("numeric(12,2)", "NaN"),
    ("numeric(38,0)", "NaN"),
    ("moment", "infinity"),
    ("price", "NaN"),
    ("int[]", "{{1,2},{3,4}}"),
    ("int[]", "[0:1]={1,2}"),
    ("int[]", "[-1:0][2:3]={{1,2},{3,4}}"),
    ("text[]", "{{a}}"),
    ("numeric[]", "[2:2]={1.5}"),
    ("mood[]", "{{sad},{so so}}"),
    ("ints", "{{1}}"),
    ("codes", "[3:3]={x}"),
    ("date[]", "{2024-01-01,NULL,infinity}"),
    ("time[]", "{24:00}"),
    ("timestamp[]", "{-infinity}"),
    ("timestamptz[]", "{2024-01-01 00:00Z,10000-01-01 00:00Z}"),
    ("numeric(12,2)[]", "{NULL,NaN}"),
    ("price[]", "{1.5,NaN}"),
    ("moment[]", "{infinity}"),
)
