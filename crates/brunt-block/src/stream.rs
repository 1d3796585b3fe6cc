//! A TCP connection on a ring, made for protocols that frame bulk data: sends chains of borrowed
//! segments in one vectored call, receives headers into one buffer and payloads straight to
//! where they belong. Both ends of iSCSI stand on it. It knows no protocol.
