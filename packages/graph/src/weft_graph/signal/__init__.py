"""Signal processing: windows, frames, spectra and their features, composed of other ops."""
