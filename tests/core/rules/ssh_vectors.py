"""Signatures that ssh-keygen (OpenSSH 9.2) made or accepts, over one message: keys of no use elsewhere."""

from __future__ import annotations

from typing import Final

MESSAGE: Final = b"opledger test vector 1\n"

#: name -> (public key as in a .pub file, signature as one line of base64)
VECTORS: Final = {
    "ecdsa256 sha256": (
        (
            "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBIXArk08+oOkc3x1+NR+C5Tg"
            "R9U5jztoIQeNRnS2pi7tRYxu1JS/qBxF8HCgWqrbiPp7Myv0YC7t/+4nxtmQblQ="
        ),
        (
            "U1NIU0lHAAAAAQAAAGgAAAATZWNkc2Etc2hhMi1uaXN0cDI1NgAAAAhuaXN0cDI1NgAAAEEEhcCuTTz6g6RzfHX41H4LlOBH"
            "1TmPO2ghB41GdLamLu1FjG7UlL+oHEXwcKBaqtuI+nszK/RgLu3/7ifG2ZBuVAAAABNvcGxlZGdlci1hcHByb3ZhbEAxAAAA"
            "AAAAAAZzaGEyNTYAAABkAAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAABJAAAAIHKKvsCeucDfrbqgS2GoilDqyw3fXokc2dtO"
            "iAtjno20AAAAIQCVYk93n8JIoUECO62jj+0jnTTGvSI2TRsFK3U+j5ppYA=="
        ),
    ),
    "ecdsa256 sha512": (
        (
            "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBIXArk08+oOkc3x1+NR+C5Tg"
            "R9U5jztoIQeNRnS2pi7tRYxu1JS/qBxF8HCgWqrbiPp7Myv0YC7t/+4nxtmQblQ="
        ),
        (
            "U1NIU0lHAAAAAQAAAGgAAAATZWNkc2Etc2hhMi1uaXN0cDI1NgAAAAhuaXN0cDI1NgAAAEEEhcCuTTz6g6RzfHX41H4LlOBH"
            "1TmPO2ghB41GdLamLu1FjG7UlL+oHEXwcKBaqtuI+nszK/RgLu3/7ifG2ZBuVAAAABNvcGxlZGdlci1hcHByb3ZhbEAxAAAA"
            "AAAAAAZzaGE1MTIAAABjAAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAABIAAAAIGAiBdX/84qmAgtg5LXm7kdB2Q42HtIfpVZL"
            "VFnJjs7RAAAAIAL4MOz/78Vkw26zYwlRve93j0IVYQ4PM1vihvDr9dI1"
        ),
    ),
    "ecdsa384 sha256": (
        (
            "ecdsa-sha2-nistp384 AAAAE2VjZHNhLXNoYTItbmlzdHAzODQAAAAIbmlzdHAzODQAAABhBOylVy6Woqb2usFJJFVfQ3ZA"
            "VdpEyV63t4jP9592YNi/xNar1+ngpRwliu+JfHXoTGpiIB4kxByQKmfDmrO8WaW/zPozhbWzOf++Ur91ANHitT3Zj7D6gxV9"
            "LJlN4wxWUg=="
        ),
        (
            "U1NIU0lHAAAAAQAAAIgAAAATZWNkc2Etc2hhMi1uaXN0cDM4NAAAAAhuaXN0cDM4NAAAAGEE7KVXLpaipva6wUkkVV9DdkBV"
            "2kTJXre3iM/3n3Zg2L/E1qvX6eClHCWK74l8dehMamIgHiTEHJAqZ8Oas7xZpb/M+jOFtbM5/75Sv3UA0eK1PdmPsPqDFX0s"
            "mU3jDFZSAAAAE29wbGVkZ2VyLWFwcHJvdmFsQDEAAAAAAAAABnNoYTI1NgAAAIQAAAATZWNkc2Etc2hhMi1uaXN0cDM4NAAA"
            "AGkAAAAwOe/mkEC7v9NFzzjEan94wjIYCs9UcCvGVQVOEKGVSBv1JKk1qyGA+beeRJoMhMucAAAAMQDU3kp5sE6HJ5f+5EW7"
            "CrpAazX+5iR6/cbHUIm9ikU9QlKc+t0aEFUPQupHxVvYu70="
        ),
    ),
    "ecdsa384 sha512": (
        (
            "ecdsa-sha2-nistp384 AAAAE2VjZHNhLXNoYTItbmlzdHAzODQAAAAIbmlzdHAzODQAAABhBOylVy6Woqb2usFJJFVfQ3ZA"
            "VdpEyV63t4jP9592YNi/xNar1+ngpRwliu+JfHXoTGpiIB4kxByQKmfDmrO8WaW/zPozhbWzOf++Ur91ANHitT3Zj7D6gxV9"
            "LJlN4wxWUg=="
        ),
        (
            "U1NIU0lHAAAAAQAAAIgAAAATZWNkc2Etc2hhMi1uaXN0cDM4NAAAAAhuaXN0cDM4NAAAAGEE7KVXLpaipva6wUkkVV9DdkBV"
            "2kTJXre3iM/3n3Zg2L/E1qvX6eClHCWK74l8dehMamIgHiTEHJAqZ8Oas7xZpb/M+jOFtbM5/75Sv3UA0eK1PdmPsPqDFX0s"
            "mU3jDFZSAAAAE29wbGVkZ2VyLWFwcHJvdmFsQDEAAAAAAAAABnNoYTUxMgAAAIQAAAATZWNkc2Etc2hhMi1uaXN0cDM4NAAA"
            "AGkAAAAxALNaxdX7Wx2GjxkPtoV+u7G83dpxrwGAkeLsTamh0zbpG5EH2AYgTvN7Q6d89mszawAAADAi50pxze5pjN2yHQZV"
            "CAyFEjffW+a64JZQyT90uyt5OSjXJFPjXBEf2dQ8pdBEnoA="
        ),
    ),
    "ecdsa521 sha256": (
        (
            "ecdsa-sha2-nistp521 AAAAE2VjZHNhLXNoYTItbmlzdHA1MjEAAAAIbmlzdHA1MjEAAACFBAEQKSUOoeu5bvtjne2iZEuD"
            "NoI4WpHbcESprsAnz6TudPmBLv4dAfhDty4WLAUKkn/fqnVC/OIy5PyxOwT47OfI8QAXqNIDs7vEFeeWBtuHE4RfBpnutyyI"
            "1hgZuJWbsPU+yrmHD7eVkgzGqJWDnpiB+FIGrEVFiIQFIMekKG8PuMJ81g=="
        ),
        (
            "U1NIU0lHAAAAAQAAAKwAAAATZWNkc2Etc2hhMi1uaXN0cDUyMQAAAAhuaXN0cDUyMQAAAIUEARApJQ6h67lu+2Od7aJkS4M2"
            "gjhakdtwRKmuwCfPpO50+YEu/h0B+EO3LhYsBQqSf9+qdUL84jLk/LE7BPjs58jxABeo0gOzu8QV55YG24cThF8Gme63LIjW"
            "GBm4lZuw9T7KuYcPt5WSDMaolYOemIH4UgasRUWIhAUgx6Qobw+4wnzWAAAAE29wbGVkZ2VyLWFwcHJvdmFsQDEAAAAAAAAA"
            "BnNoYTI1NgAAAKYAAAATZWNkc2Etc2hhMi1uaXN0cDUyMQAAAIsAAABCAe6V3Tewqk3Eoh7CUJsjlNVMsl4amSmPL4kikNYu"
            "H6+F65IJjnvJ0mKLitHc+Mf3008JyQ9hOmbog5S7BaJdoRzEAAAAQWNoM15zM24v6aKSw5M+53qSPEQCUAZi117cNPK8dyks"
            "qXWFKyw7XQqpeADU0tcFwu1uTefd+ri18nC3+7KEvf78"
        ),
    ),
    "ecdsa521 sha512": (
        (
            "ecdsa-sha2-nistp521 AAAAE2VjZHNhLXNoYTItbmlzdHA1MjEAAAAIbmlzdHA1MjEAAACFBAEQKSUOoeu5bvtjne2iZEuD"
            "NoI4WpHbcESprsAnz6TudPmBLv4dAfhDty4WLAUKkn/fqnVC/OIy5PyxOwT47OfI8QAXqNIDs7vEFeeWBtuHE4RfBpnutyyI"
            "1hgZuJWbsPU+yrmHD7eVkgzGqJWDnpiB+FIGrEVFiIQFIMekKG8PuMJ81g=="
        ),
        (
            "U1NIU0lHAAAAAQAAAKwAAAATZWNkc2Etc2hhMi1uaXN0cDUyMQAAAAhuaXN0cDUyMQAAAIUEARApJQ6h67lu+2Od7aJkS4M2"
            "gjhakdtwRKmuwCfPpO50+YEu/h0B+EO3LhYsBQqSf9+qdUL84jLk/LE7BPjs58jxABeo0gOzu8QV55YG24cThF8Gme63LIjW"
            "GBm4lZuw9T7KuYcPt5WSDMaolYOemIH4UgasRUWIhAUgx6Qobw+4wnzWAAAAE29wbGVkZ2VyLWFwcHJvdmFsQDEAAAAAAAAA"
            "BnNoYTUxMgAAAKcAAAATZWNkc2Etc2hhMi1uaXN0cDUyMQAAAIwAAABCAYwKOoKj8uElqHvC4emo6SzZXTDXHhl9f6pMmDtn"
            "gkquWkG/4AAL6rjNcSs7etdZxhhCgsSlds0vG3/oKXawhOzBAAAAQgCMQc7cwnoYpa/ryDpuqTFeH9lyeQKAuDSp1su/7Gjd"
            "a2RxyzlvWf2c4zmcoI808jz9TIDEPHF7CmXLENfzwXL5hw=="
        ),
    ),
    "ed25519 sha256": (
        (
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBu11oBhIjilvCVHcs/fzS2zxn4wZoLHn76h+UuaRq5U"
        ),
        (
            "U1NIU0lHAAAAAQAAADMAAAALc3NoLWVkMjU1MTkAAAAgG7XWgGEiOKW8JUdyz9/NLbPGfjBmgsefvqH5S5pGrlQAAAATb3Bs"
            "ZWRnZXItYXBwcm92YWxAMQAAAAAAAAAGc2hhMjU2AAAAUwAAAAtzc2gtZWQyNTUxOQAAAEAZ/Nfgm8KJkvJ704xJjejLTe+X"
            "fFWEmRbKDP6TvRHqmzdDRH7u1J7SqF04WkSYUJri2jDrDxdfCSc7ZQv5h1oK"
        ),
    ),
    "ed25519 sha512": (
        (
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBu11oBhIjilvCVHcs/fzS2zxn4wZoLHn76h+UuaRq5U"
        ),
        (
            "U1NIU0lHAAAAAQAAADMAAAALc3NoLWVkMjU1MTkAAAAgG7XWgGEiOKW8JUdyz9/NLbPGfjBmgsefvqH5S5pGrlQAAAATb3Bs"
            "ZWRnZXItYXBwcm92YWxAMQAAAAAAAAAGc2hhNTEyAAAAUwAAAAtzc2gtZWQyNTUxOQAAAECcC1zGjrlFSSbSXoxbsJ8FzZc5"
            "E1qSMQrJBYCgx7N4Guk7aIFvhvBB1qdtxlxqeBmudSxpK+fZQb0zu7SmnaoN"
        ),
    ),
    "rsa2048 sha256": (
        (
            "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQCv5ad8AdtkbUagjnscMNrG0jsMKjmfbMVbJcAVsNZG5GYNPX9jtP8CnUh4"
            "NqhsKl4HYrHMT6YDqTVwQuQLaP8PMWvj3XUIcJlOJtjWS/iAJM1rpOVtnWeiciJwSGrFVQZl/YRP1eyMWBaxTz0uV7Ckf5VI"
            "gP6u/881HCwtgnoSff9EUugoiU65vOwF2Uid3JYaSn1MR0UMDY5YoC2BMVbDFVBkc9wAwcki/fw5HrU2TedESOi393r0FAFF"
            "1CvJ1dcxExnd0LPWJSJPIw4QlLJRczERttuTWjdCgdLnuGgft0hxCB0TJemSOtHB1ouvtY0k0vAmZjd5FqExhHQnnaPN"
        ),
        (
            "U1NIU0lHAAAAAQAAARcAAAAHc3NoLXJzYQAAAAMBAAEAAAEBAK/lp3wB22RtRqCOexww2sbSOwwqOZ9sxVslwBWw1kbkZg09"
            "f2O0/wKdSHg2qGwqXgdiscxPpgOpNXBC5Ato/w8xa+PddQhwmU4m2NZL+IAkzWuk5W2dZ6JyInBIasVVBmX9hE/V7IxYFrFP"
            "PS5XsKR/lUiA/q7/zzUcLC2CehJ9/0RS6CiJTrm87AXZSJ3clhpKfUxHRQwNjligLYExVsMVUGRz3ADBySL9/DketTZN50RI"
            "6Lf3evQUAUXUK8nV1zETGd3Qs9YlIk8jDhCUslFzMRG225NaN0KB0ue4aB+3SHEIHRMl6ZI60cHWi6+1jSTS8CZmN3kWoTGE"
            "dCedo80AAAATb3BsZWRnZXItYXBwcm92YWxAMQAAAAAAAAAGc2hhMjU2AAABFAAAAAxyc2Etc2hhMi01MTIAAAEAHP1N2Xcd"
            "QGlYpYJqpzv77Am57cmL7zeXI1ayLW1sluRCl8SOI5U/GZyrX6U6r2TSVDyZwmZIm3Goc+FXARmnFnVPfI8J09yQuSr7ruy1"
            "y5Nm+SxGnRFhm8Q0IgsNoiMiRCk8Va0DWM2Le+OBLSKPzLQR7qdKf3s9S3fxqetzxEFFV3w3u0+gBwu4ddsN4Nxp40u2lAC8"
            "OSO40HK+p+vS0i5skgSHkZVgBZ48MkiuNoK83QNSSwoeIIr7cyKYQVhL8TDhzrtf5IDppSc/5BvGmybzeOrGcba6Kw8to4zC"
            "bzvTT9aITjh6Y1T+JoSjH4M4yZBd6VlG6+kr1HQfgGungw=="
        ),
    ),
    "rsa2048 sha512": (
        (
            "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQCv5ad8AdtkbUagjnscMNrG0jsMKjmfbMVbJcAVsNZG5GYNPX9jtP8CnUh4"
            "NqhsKl4HYrHMT6YDqTVwQuQLaP8PMWvj3XUIcJlOJtjWS/iAJM1rpOVtnWeiciJwSGrFVQZl/YRP1eyMWBaxTz0uV7Ckf5VI"
            "gP6u/881HCwtgnoSff9EUugoiU65vOwF2Uid3JYaSn1MR0UMDY5YoC2BMVbDFVBkc9wAwcki/fw5HrU2TedESOi393r0FAFF"
            "1CvJ1dcxExnd0LPWJSJPIw4QlLJRczERttuTWjdCgdLnuGgft0hxCB0TJemSOtHB1ouvtY0k0vAmZjd5FqExhHQnnaPN"
        ),
        (
            "U1NIU0lHAAAAAQAAARcAAAAHc3NoLXJzYQAAAAMBAAEAAAEBAK/lp3wB22RtRqCOexww2sbSOwwqOZ9sxVslwBWw1kbkZg09"
            "f2O0/wKdSHg2qGwqXgdiscxPpgOpNXBC5Ato/w8xa+PddQhwmU4m2NZL+IAkzWuk5W2dZ6JyInBIasVVBmX9hE/V7IxYFrFP"
            "PS5XsKR/lUiA/q7/zzUcLC2CehJ9/0RS6CiJTrm87AXZSJ3clhpKfUxHRQwNjligLYExVsMVUGRz3ADBySL9/DketTZN50RI"
            "6Lf3evQUAUXUK8nV1zETGd3Qs9YlIk8jDhCUslFzMRG225NaN0KB0ue4aB+3SHEIHRMl6ZI60cHWi6+1jSTS8CZmN3kWoTGE"
            "dCedo80AAAATb3BsZWRnZXItYXBwcm92YWxAMQAAAAAAAAAGc2hhNTEyAAABFAAAAAxyc2Etc2hhMi01MTIAAAEAGJ8ivMR3"
            "+V6k+uwrTQFlmNluNasEMe239KfjEYV3tO1uqS0owKLag2rQLaIEaaZd29gJYy2+cPVvuOJMYy1osUU710SPo2jInqJMvPwx"
            "6W7UgjC3z4/SnFSH+DrUd5vtxdUue+zOHZhD1jF1XwdZEa4nxNtsPpxMYEDqC/qP0dHkKbn1aHVgDu9WNCnfnyRvwsO4Fh6D"
            "EVyLTKVhqOhU0JSC/qKWzZAZmC13NlAQIbsP6+XuGehcEy+v4UmJDJ9b028BlKq31P+NJYgirSg2ahjuNHBxmhPEhNekTuob"
            "/TbmXhwM3AGlfPrQ/Z6qhzhJpJ/deCZ6vBDTum06IohOHg=="
        ),
    ),
    "sk-ssh-ed25519@openssh.com": (
        (
            "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIOpKbGPinFIKvvVQexMuxfmVR"
            "3auvr57kkIe6mkURtIsAAAABHNzaDo="
        ),
        (
            "U1NIU0lHAAAAAQAAAEoAAAAac2stc3NoLWVkMjU1MTlAb3BlbnNzaC5jb20AAAAg6kpsY+KcUgq+9VB7Ey7F+ZVHdq6+vnuS"
            "Qh7qaRRG0iwAAAAEc3NoOgAAABNvcGxlZGdlci1hcHByb3ZhbEAxAAAAAAAAAAZzaGE1MTIAAABnAAAAGnNrLXNzaC1lZDI1"
            "NTE5QG9wZW5zc2guY29tAAAAQBx3wnv8Zvsf0j4bN54LvJhtZqozLXUVeqEh2dLE+6FTokEWcsomSIvk6KyWxOsBaGH3HQnY"
            "t7YYyKN58Y33KgUBAAAATQ=="
        ),
    ),
    "sk-ecdsa-sha2-nistp256@openssh.com": (
        (
            "sk-ecdsa-sha2-nistp256@openssh.com AAAAInNrLWVjZHNhLXNoYTItbmlzdHAyNTZAb3BlbnNzaC5jb20AAAAIbmlzd"
            "HAyNTYAAABBBB4YUy/UdUwC8wQdnHXOszuD/9gax85P6ILMscmLxYlupGwxHE4v9A3ZajZT5uRURdMt/khuztdcepDGoYiBw"
            "KMAAAAEc3NoOg=="
        ),
        (
            "U1NIU0lHAAAAAQAAAH8AAAAic2stZWNkc2Etc2hhMi1uaXN0cDI1NkBvcGVuc3NoLmNvbQAAAAhuaXN0cDI1NgAAAEEEHhhT"
            "L9R1TALzBB2cdc6zO4P/2BrHzk/ogsyxyYvFiW6kbDEcTi/0DdlqNlPm5FRF0y3+SG7O11x6kMahiIHAowAAAARzc2g6AAAA"
            "E29wbGVkZ2VyLWFwcHJvdmFsQDEAAAAAAAAABnNoYTUxMgAAAHgAAAAic2stZWNkc2Etc2hhMi1uaXN0cDI1NkBvcGVuc3No"
            "LmNvbQAAAEkAAAAhAJXW5ym1Ik/+oUTj0gPH3knfy90JD98sJKvIk4tgm1dPAAAAIAFQaaCf4FEHY2us6a5c1JmM6Na0ldJq"
            "f4CmC8Iq3NkgAQAAAE0="
        ),
    ),
}  # fmt: skip
