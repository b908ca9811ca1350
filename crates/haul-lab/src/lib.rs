//! For developers: data sets from seeds, fault injectors and the rules of the house as tests
