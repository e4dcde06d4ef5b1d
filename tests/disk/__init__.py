"""The disk fails, and the power goes: T7 and T8 of the reliability programme. ``python -m tests.disk --help``.

events    one thing that a process asks of the disk, and who is told of it
vfs       the same SQLite that the product uses, told apart call by call
osfiles   the other files: results, anchors, keys, notes of progress
stories   what a person and a worker do, from an empty folder to the end
faults    T7: the n-th call fails, or is the last one
recorder  T8: what was asked of the disk, in order, and what was acknowledged
images    T8: what may lie on the disk after the power went
power     T8: every image is opened, and must show a state that was committed
breaks    damages to the product, made in memory: each must be caught
programme which stories, how many points, on how many processes; and what is printed
"""
