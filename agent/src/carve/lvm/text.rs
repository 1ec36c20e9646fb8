//! LVM's text config format: sections, strings, numbers, arrays. Total and bounded: any bytes give a value or an error.
