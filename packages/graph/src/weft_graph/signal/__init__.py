"""Signal processing: windows, frames, spectra and their features, as compositions of other ops."""
