;; attack: Speaks version 1.0.0 of the contract.
;; expect: load -> version
;; version: 1.0.0
