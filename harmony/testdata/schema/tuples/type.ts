type f = (_: {
a?: [string, number | null],
b?: [string, ...number[]],
c?: [string, boolean],
d?: [string],
}) => any;
