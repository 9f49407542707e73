type f = (_: 
 | {
   a?: string,
   }
 | string // a comment at the end
) => any;
