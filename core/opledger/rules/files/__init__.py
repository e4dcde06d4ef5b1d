"""Reading the TOML files that people write: contracts and settings. Text in, frozen values or all problems out.

contract    a contract file: `parse`
calls, result   its tables, one function each
checks      what no single key shows: things that do not go together
not_yet     what the format can say and this version cannot drive
settings    opledger.toml
reader      typed reading with key paths, and the list of problems
converters  one function for each kind of value
scope       which names templates and conditions may use where
toml_lines  the line of each key
"""
