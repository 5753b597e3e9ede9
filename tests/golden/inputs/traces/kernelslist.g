MemcpyHtoD,0x0000000000000000,128
kernel-1.traceg
kernel-2.traceg
kernel-3.traceg
