type f = (_: {
a?: string,
b?: string,
}) => any;
