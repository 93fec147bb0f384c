/* What doctor runs in children: this program again, with DOCTOR_CHILD saying what. */
#ifndef GPUSPY_DOCTOR_CHILD_H
#define GPUSPY_DOCTOR_CHILD_H

int doctor_ask_driver(void);
int doctor_ask_nvml(void);

#endif
