/* What doctor runs in children: this program again, with DOCTOR_CHILD saying what. */
#pragma once

int doctor_ask_driver(void);
int doctor_ask_nvml(void);
