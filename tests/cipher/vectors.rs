//! Published vectors.

use nbdcrypt::cipher::{CipherSpec, IvOptions, SectorCipher};
use nbdcrypt::units::SectorSize;

fn cipher(spec: &str, key_hex: &str) -> SectorCipher {
    let spec = CipherSpec::parse(spec).expect("a good one");
    let key = hex::decode(key_hex).expect("hexadecimal");
    SectorCipher::new(&spec, &key, SectorSize::MIN, IvOptions::default()).expect("supported")
}

/// One of IEEE 1619-2007, annex B, whose data unit is a sector of 512 bytes: the bytes 0 to 255,
/// twice.
struct XtsVector {
    number: u32,
    key: &'static str,
    sequence_number: u64,
    sealed: &'static str,
}

const IEEE_1619: &[XtsVector] = &[
    XtsVector {
        number: 4,
        key: "2718281828459045235360287471352631415926535897932384626433832795",
        sequence_number: 0x0,
        sealed: "27a7479befa1d476489f308cd4cfa6e2a96e4bbe3208ff25287dd3819616e89cc78cf7f5e543445f\
                 8333d8fa7f56000005279fa5d8b5e4ad40e736ddb4d35412328063fd2aab53e5ea1e0a9f332500a5\
                 df9487d07a5c92cc512c8866c7e860ce93fdf166a24912b422976146ae20ce846bb7dc9ba94a767a\
                 aef20c0d61ad02655ea92dc4c4e41a8952c651d33174be51a10c421110e6d81588ede82103a252d8\
                 a750e8768defffed9122810aaeb99f9172af82b604dc4b8e51bcb08235a6f4341332e4ca60482a4b\
                 a1a03b3e65008fc5da76b70bf1690db4eae29c5f1badd03c5ccf2a55d705ddcd86d449511ceb7ec3\
                 0bf12b1fa35b913f9f747a8afd1b130e94bff94effd01a91735ca1726acd0b197c4e5b03393697e1\
                 26826fb6bbde8ecc1e08298516e2c9ed03ff3c1b7860f6de76d4cecd94c8119855ef5297ca67e9f3\
                 e7ff72b1e99785ca0a7e7720c5b36dc6d72cac9574c8cbbc2f801e23e56fd344b07f22154beba0f0\
                 8ce8891e643ed995c94d9a69c9f1b5f499027a78572aeebd74d20cc39881c213ee770b1010e4bea7\
                 18846977ae119f7a023ab58cca0ad752afe656bb3c17256a9f6e9bf19fdd5a38fc82bbe872c5539e\
                 db609ef4f79c203ebb140f2e583cb2ad15b4aa5b655016a8449277dbd477ef2c8d6c017db738b18d\
                 eb4a427d1923ce3ff262735779a418f20a282df920147beabe421ee5319d0568",
    },
    XtsVector {
        number: 10,
        key: "2718281828459045235360287471352662497757247093699959574966967627\
              3141592653589793238462643383279502884197169399375105820974944592",
        sequence_number: 0xff,
        sealed: "1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b5d31e276f8fe4a8d\
                 66b317f9ac683f44680a86ac35adfc3345befecb4bb188fd5776926c49a3095eb108fd1098baec70\
                 aaa66999a72a82f27d848b21d4a741b0c5cd4d5fff9dac89aeba122961d03a757123e9870f8acf10\
                 00020887891429ca2a3e7a7d7df7b10355165c8b9a6d0a7de8b062c4500dc4cd120c0f7418dae3d0\
                 b5781c34803fa75421c790dfe1de1834f280d7667b327f6c8cd7557e12ac3a0f93ec05c52e0493ef\
                 31a12d3d9260f79a289d6a379bc70c50841473d1a8cc81ec583e9645e07b8d9670655ba5bbcfecc6\
                 dc3966380ad8fecb17b6ba02469a020a84e18e8f84252070c13e9f1f289be54fbc481457778f6160\
                 15e1327a02b140f1505eb309326d68378f8374595c849d84f4c333ec4423885143cb47bd71c5edae\
                 9be69a2ffeceb1bec9de244fbe15992b11b77c040f12bd8f6a975a44a0f90c29a9abc3d4d8939272\
                 84c58754cce294529f8614dcd2aba991925fedc4ae74ffac6e333b93eb4aff0479da9a410e4450e0\
                 dd7ae4c6e2910900575da401fc07059f645e8b7e9bfdef33943054ff84011493c27b3429eaedb4ed\
                 5376441a77ed43851ad77f16f541dfd269d50d6a5f14fb0aab1cbb4c1550be97f7ab4066193c4caa\
                 773dad38014bd2092fa755c824bb5e54c4f36ffda9fcea70b9c6e693e148c151",
    },
    XtsVector {
        number: 14,
        key: "2718281828459045235360287471352662497757247093699959574966967627\
              3141592653589793238462643383279502884197169399375105820974944592",
        sequence_number: 0xffffffffff,
        sealed: "64497e5a831e4a932c09be3e5393376daa599548b816031d224bbf50a818ed2350eae7e96087c8a0\
                 db51ad290bd00c1ac1620857635bf246c176ab463be30b808da548081ac847b158e1264be25bb091\
                 0bbc92647108089415d45fab1b3d2604e8a8eff1ae4020cfa39936b66827b23f371b92200be90251\
                 e6d73c5f86de5fd4a950781933d79a28272b782a2ec313efdfcc0628f43d744c2dc2ff3dcb66999b\
                 50c7ca895b0c64791eeaa5f29499fb1c026f84ce5b5c72ba1083cddb5ce45434631665c333b60b11\
                 593fb253c5179a2c8db813782a004856a1653011e93fb6d876c18366dd8683f53412c0c180f9c848\
                 592d593f8609ca736317d356e13e2bff3a9f59cd9aeb19cd482593d8c46128bb32423b37a9adfb48\
                 2b99453fbe25a41bf6feb4aa0bef5ed24bf73c762978025482c13115e4015aac992e5613a3b5c2f6\
                 85b84795cb6e9b2656d8c88157e52c42f978d8634c43d06fea928f2822e465aa6576e9bf41938450\
                 6cc3ce3c54ac1a6f67dc66f3b30191e698380bc999b05abce19dc0c6dcc2dd001ec535ba18deb2df\
                 1a101023108318c75dc98611a09dc48a0acdec676fabdf222f07e026f059b672b56e5cbc8e1d21bb\
                 d867dd927212054681d70ea737134cdfce93b6f82ae22423274e58a0821cc5502e2d0ab4585e94de\
                 6975be5e0b4efce51cd3e70c25a1fbbbd609d273ad5b0d59631c531f6a0a57b9",
    },
    XtsVector {
        number: 19,
        key: "e0e1e2e3e4e5e6e7e8e9eaebecedeeefc0c1c2c3c4c5c6c7c8c9cacbcccdcecf",
        sequence_number: 0xa987654321,
        sealed: "38b45812ef43a05bd957e545907e223b954ab4aaf088303ad910eadf14b42be68b2461149d8c8ba8\
                 5f992be970bc621f1b06573f63e867bf5875acafa04e42ccbd7bd3c2a0fb1fff791ec5ec36c66ae4\
                 ac1e806d81fbf709dbe29e471fad38549c8e66f5345d7c1eb94f405d1ec785cc6f6a68f6254dd833\
                 9f9d84057e01a17741990482999516b5611a38f41bb6478e6f173f320805dd71b1932fc333cb9ee3\
                 9936beea9ad96fa10fb4112b901734ddad40bc1878995f8e11aee7d141a2f5d48b7a4e1e7f0b2c04\
                 830e69a4fd1378411c2f287edf48c6c4e5c247a19680f7fe41cefbd49b582106e3616cbbe4dfb234\
                 4b2ae9519391f3e0fb4922254b1d6d2d19c6d4d537b3a26f3bcc51588b32f3eca0829b6a5ac72578\
                 fb814fb43cf80d64a233e3f997a3f02683342f2b33d25b492536b93becb2f5e1a8b82f5b88334272\
                 9e8ae09d16938841a21a97fb543eea3bbff59f13c1a18449e398701c1ad51648346cbc04c27bb2da\
                 3b93a1372ccae548fb53bee476f9e9c91773b1bb19828394d55d3e1a20ed69113a860b6829ffa847\
                 224604435070221b257e8dff783615d2cae4803a93aa4334ab482a0afac9c0aeda70b45a481df5de\
                 c5df8cc0f423c77a5fd46cd312021d4b438862419a791be03bb4d97c0e59578542531ba466a83baf\
                 92cefc151b5cc1611a167893819b63fb8a6b18e86de60290fa72b797b0ce59f3",
    },
];

#[test]
fn xts_ieee_1619() {
    let plain: Vec<u8> = (0..512).map(|i| i as u8).collect();
    for vector in IEEE_1619 {
        let mut data = plain.clone();
        // The standard's data unit number is plain64's sector number.
        let cipher = cipher("aes-xts-plain64", vector.key);
        cipher.encrypt(&mut data, vector.sequence_number);
        assert_eq!(
            hex::encode(&data),
            vector.sealed,
            "vector {}",
            vector.number
        );
        cipher.decrypt(&mut data, vector.sequence_number);
        assert_eq!(data, plain, "vector {}", vector.number);
    }
}

/// NIST SP 800-38A, F.2.1 to F.2.6. Its IV is no sector's, so it is added to the first block, and
/// sector 0 (whose IV is zero) gives the same chain; zeros follow the four blocks.
#[test]
fn cbc_sp_800_38a() {
    const IV: &str = "000102030405060708090a0b0c0d0e0f";
    const PLAIN: &str = "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51\
                         30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710";
    for (key, sealed) in [
        (
            "2b7e151628aed2a6abf7158809cf4f3c",
            "7649abac8119b246cee98e9b12e9197d5086cb9b507219ee95db113a917678b2\
             73bed6b8e3c1743b7116e69e222295163ff1caa1681fac09120eca307586e1a7",
        ),
        (
            "8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b",
            "4f021db243bc633d7178183a9fa071e8b4d9ada9ad7dedf4e5e738763f69145a\
             571b242012fb7ae07fa9baac3df102e008b0e27988598881d920a9e64f5615cd",
        ),
        (
            "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
            "f58c4c04d6e5f1ba779eabfb5f7bfbd69cfc4e967edb808d679f777bc6702c7d\
             39f23369a9d9bacfa530e26304231461b2eb05e2c39be9fcda6c19078c6a9d1b",
        ),
    ] {
        let mut plain = hex::decode(PLAIN).expect("hexadecimal");
        for (byte, iv) in plain.iter_mut().zip(hex::decode(IV).expect("hexadecimal")) {
            *byte ^= iv;
        }
        plain.resize(512, 0);
        let mut data = plain.clone();
        let cipher = cipher("aes-cbc-plain64", key);
        cipher.encrypt(&mut data, 0);
        assert_eq!(hex::encode(&data[..64]), sealed);
        cipher.decrypt(&mut data, 0);
        assert_eq!(data, plain);
    }
}
